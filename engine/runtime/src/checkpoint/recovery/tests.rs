//! Layouts of a checkpoint, and what each means: one table.

use super::*;

/// Builds views from short words: `o0 a0 c0 o1` is batch 0 complete and batch 1 logged; `o1!` is torn, `o1.1` is revision
/// 1; `b0` is a boundary at batch 0, `b!` a torn one; `s0` and `s0,t1` are what the sinks `s` and `t` show.
fn view(words: &str) -> View {
    let mut view = View::default();
    view.sinks.insert("s".to_owned(), None);
    for word in words.split_whitespace() {
        let torn = word.ends_with('!');
        let (kind, rest) = word.trim_end_matches('!').split_at(1);
        let (number, revision) = rest.split_once('.').unwrap_or((rest, "0"));
        let (number, revision): (u64, u32) = (number.parse().unwrap_or(0), revision.parse().unwrap());
        match kind {
            "o" => {
                let previous_acks = number.checked_sub(1).map(|before| Nonce::from_text(format!("a{before}")));
                let nonce = Nonce::from_text(format!("o{number}.{revision}"));
                let entry = OffsetsSeen { nonce, previous_acks, sources: BTreeSet::new() };
                add(&mut view.offsets, number, revision, torn, entry);
            }
            "a" => {
                let nonce = Nonce::from_text(format!("a{number}"));
                let offsets_nonce = Nonce::from_text(format!("o{number}.0"));
                let sinks = BTreeSet::from(["s".to_owned()]);
                add(&mut view.acks, number, revision, torn, AcksSeen { nonce, offsets_nonce, sinks });
            }
            "c" => {
                let entry = CommitSeen { acks_nonce: Nonce::from_text(format!("a{number}")) };
                add(&mut view.commits, number, revision, torn, entry);
            }
            "b" if torn => view.boundary.is_torn = true,
            "b" => view.boundary.dead = Some(number),
            sink => {
                view.sinks.insert(sink.to_owned(), Some(number));
            }
        }
    }
    view
}

fn add<T>(log: &mut BTreeMap<u64, Revisions<T>>, number: u64, revision: u32, torn: bool, entry: T) {
    let seen = if torn { Seen::Torn } else { Seen::Whole(entry) };
    log.entry(number).or_default().found.insert(revision, seen);
}

/// A decision in short words.
fn short(decision: &Decision) -> String {
    match decision {
        Decision::Plan { batch_id, revision: 0 } => format!("plan {batch_id}"),
        Decision::Plan { batch_id, revision } => format!("plan {batch_id}.{revision}"),
        Decision::Run { batch_id } => format!("run {batch_id}"),
        Decision::RollForward { batch_id, commit_revision: 0 } => format!("roll {batch_id}"),
        Decision::RollForward { batch_id, commit_revision } => format!("roll {batch_id}, commit .{commit_revision}"),
        Decision::Unsound(Reason::Missing { path, .. }) => format!("missing {}", short_path(path)),
        Decision::Unsound(Reason::Damaged { path }) => format!("damaged {}", short_path(path)),
        Decision::Unsound(Reason::Unrelated { path, earlier }) => {
            format!("unrelated {} {}", short_path(path), short_path(earlier))
        }
        Decision::Unsound(Reason::SinkAhead { sink, shows, .. }) => format!("{sink} ahead {shows}"),
        Decision::Unsound(Reason::SinkBehind { sink, committed, .. }) => format!("{sink} behind {committed}"),
    }
}

fn short_path(path: &str) -> String {
    let (log, name) = path.split_once('/').unwrap();
    let (number, revision) = name.split_once(".r").map_or((name, String::new()), |(n, r)| (n, format!(".{r}")));
    format!("{}{}{revision}", &log[..1], number.parse::<u64>().unwrap())
}

#[test]
fn every_layout_has_one_meaning() {
    for (words, expected) in [
        // In order: a fresh checkpoint, and a crash after each durable step.
        ("", "plan 0"),
        ("o0", "run 0"),
        ("o0 a0", "roll 0"),
        ("o0 a0 s0", "roll 0"),
        ("o0 a0 s0 c0", "plan 1"),
        ("o0 a0 s0 c0 o1", "run 1"),
        ("o0 a0 c0 o1 a1 s0", "roll 1"),
        ("o0 a0 c0 o1 a1 s1", "roll 1"),
        // Torn newest entries.
        ("o0!", "plan 0.1"),
        ("o0! o0.1", "run 0"),
        ("o0! o0.1!", "plan 0.2"),
        ("o0 a0 s0 c0 o1!", "plan 1.1"),
        ("o0 a0 s0 c0!", "roll 0, commit .1"),
        ("o0 a0 s0 c0! c0.1", "plan 1"),
        ("o0 a0 s0 c0! c0.1!", "roll 0, commit .2"),
        // A winner may have run a plan that tore later.
        ("o0! o0.1 a0", "roll 0"),
        // Torn with a later trace, or torn acks: refused by name.
        ("o0! a0", "damaged o0"),
        ("o0 a0!", "damaged a0"),
        ("o0 a0! c0", "damaged a0"),
        ("o0! s0", "s ahead 0"),
        ("o0 a0 s0 c0! o1", "damaged c0"),
        ("o0 a0 s1 c0! o1 a1 c1", "damaged c0"),
        ("o0 a0 s1 c0 o1! a1 c1", "damaged o1"),
        // Holes, and entries without what they need.
        ("c0", "missing o0"),
        ("o0 c0", "missing a0"),
        ("a0", "missing o0"),
        ("o0 a0 c0! s0 o2", "missing o1"),
        ("o0 a0 c0 s0 o2", "missing o1"),
        ("o0 a0 c0 s0 o1 o2", "missing a1"),
        ("o0 a0 o1 s0", "missing c0"),
        ("o0 a0 s0 c0 o1 a1 c2", "missing c1"),
        ("o0.1", "missing o0"),
        ("o2 o3 c1 c2", "missing o0"),
        ("o0 c0!", "missing a0"),
        // Sinks.
        ("s0", "s ahead 0"),
        ("o0 s0", "s ahead 0"),
        ("o0 a0 s0 c0 s1", "s ahead 1"),
        ("o0 a0 c0", "s behind 0"),
        ("o0 a0 s0 c0 o1 a1 c1", "s behind 1"),
        // A sink that no acks names yet was added later.
        ("o0 a0 s0 c0", "plan 1"),
        // Below the boundary nothing counts.
        ("b0 o1 a1 c1 o2 a2 c2 s2", "plan 3"),
        ("b0 o0 o1 a1 c1 o2 s1", "run 2"),
        ("b40 o5 o41 a41 c41 o42 a42 c42 s42", "plan 43"),
        ("b0 o1 a1 s1", "missing c1"),
        ("b0", "missing c1"),
        ("b! o5 o41 a41 c41 o42 a42 c42 s42", "plan 43"),
        ("b! o0 a0 c0 o1 a1 c1 s1", "plan 2"),
    ] {
        assert_eq!(short(&decide(&view(words))), expected, "{words}");
    }
}

#[test]
fn entries_that_do_not_refer_to_one_another_are_unrelated() {
    let mut foreign = view("o0 a0 s0 c0 o1");
    foreign.commits.get_mut(&0).unwrap().found.insert(0, Seen::Whole(CommitSeen { acks_nonce: Nonce::from_text("x") }));
    assert_eq!(short(&decide(&foreign)), "unrelated c0 a0");

    let mut foreign = view("o0 a0 s0 c0 o1");
    let plan = OffsetsSeen { nonce: Nonce::from_text("o1.0"), previous_acks: None, sources: BTreeSet::new() };
    foreign.offsets.get_mut(&1).unwrap().found.insert(0, Seen::Whole(plan));
    assert_eq!(short(&decide(&foreign)), "unrelated o1 a0");

    let mut foreign = view("o0 a0");
    let plan = OffsetsSeen { nonce: Nonce::from_text("other"), previous_acks: None, sources: BTreeSet::new() };
    foreign.offsets.get_mut(&0).unwrap().found.insert(0, Seen::Whole(plan));
    assert_eq!(short(&decide(&foreign)), "unrelated a0 o0");
}

#[test]
fn entries_that_a_start_does_not_read_count_by_their_names() {
    let mut old = view("o0 a0 c0 o1 a1 c1 s1");
    for (log, number) in [("o", 0), ("a", 0), ("c", 0)] {
        match log {
            "o" => drop(old.offsets.get_mut(&number).unwrap().found.insert(0, Seen::Unread)),
            "a" => drop(old.acks.get_mut(&number).unwrap().found.insert(0, Seen::Unread)),
            _ => drop(old.commits.get_mut(&number).unwrap().found.insert(0, Seen::Unread)),
        }
    }
    assert_eq!(short(&decide(&old)), "plan 2");
}
