//! Checkpoints and tables that earlier versions wrote: they are still read, and gone on with from exactly where they
//! stand. `fixtures/README.md` says how each was made.

use std::path::Path;

use crate::support::pipeline::{files, land, session, source, table_numbers};

/// A copy of a fixture, since a query that goes on with it changes it.
fn copied(name: &str) -> tempfile::TempDir {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let root = tempfile::tempdir().unwrap();
    for file in files(&fixture) {
        let copy = root.path().join(file.strip_prefix(&fixture).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(&file, copy).unwrap();
    }
    root
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_format_1_is_gone_on_with_from_where_it_stands() {
    for (missing, reads) in [
        // Batch 4 is acknowledged: it is rolled forward, and 5 is planned from its positions.
        (&[][..], &[(50, 60)][..]),
        // It is only logged: it is run over exactly its range.
        (&["acks"], &[(40, 50), (50, 60)]),
        // It was never planned: it is planned from the positions of batch 3.
        (&["acks", "offsets"], &[(40, 60)]),
    ] {
        let (root, source) = (copied("checkpoint-v1"), source(0..60));
        let checkpoint = root.path().join("checkpoint");
        for log in missing {
            std::fs::remove_file(checkpoint.join(log).join(format!("{:020}", 4))).unwrap();
        }
        let generations = files(&checkpoint.join("generations")).len();
        land(&session(), &source, root.path()).await.unwrap();
        assert_eq!(source.reads(), reads, "without {missing:?}");
        assert_eq!(table_numbers(&root.path().join("table")), (0..60).collect::<Vec<_>>());
        assert_eq!(files(&checkpoint.join("generations")).len(), generations + 1, "a start has its own number");
        let queries = std::fs::read_dir(root.path().join("table/_tidemill")).unwrap().count();
        assert_eq!(queries, 1, "the query is the same for ever");
    }
}
