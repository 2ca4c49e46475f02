//! What is synced, in which order, and what becomes of a process whose disk once failed to.

use std::sync::Mutex;
use std::time::Duration;

use object_store::ObjectStoreExt;

use super::super::{Created, Location, create, store_error};
use super::*;
use crate::clock::SystemClock;
use crate::error::code;

/// Notes every sync with the names that are visible at that moment, and fails from the one on that it is told.
#[derive(Debug)]
struct Notes {
    root: PathBuf,
    synced: Mutex<Vec<String>>,
    /// How many more succeed; none: all.
    left: Mutex<Option<usize>>,
}

impl Syncing for Notes {
    fn sync(&self, path: &std::path::Path, _file: &File) -> std::io::Result<()> {
        let name = self.relative(path);
        let name = if name.ends_with(".tmp") { "temporary" } else { &name };
        self.synced.lock().unwrap().push(format!("{name}: {}", self.visible(&self.root).join(" ")));
        match self.left.lock().unwrap().as_mut() {
            Some(0) => return Err(std::io::Error::other("the disk is gone")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }
}

impl Notes {
    fn relative(&self, path: &std::path::Path) -> String {
        match path.strip_prefix(&self.root).unwrap().to_str().unwrap() {
            "" => "/".to_owned(),
            name => name.to_owned(),
        }
    }

    /// The names below a folder that no temporary file has, sorted.
    fn visible(&self, folder: &std::path::Path) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => names.extend(self.visible(&path)),
                false => names.push(self.relative(&path)),
            }
        }
        names.retain(|name| !name.ends_with(".tmp"));
        names.sort();
        names
    }
}

/// A store on a disk of its own.
struct Rig {
    _folder: tempfile::TempDir,
    notes: &'static Notes,
    disk: &'static Disk,
    store: DurableLocal,
}

/// Every way to write.
const WRITES: [&str; 6] = ["put", "replace", "upload", "link", "link over", "adopt"];

impl Rig {
    /// With a file `old` in it, which was not synced by us.
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::write(root.join("old"), "old").unwrap();
        let notes: &'static Notes =
            Box::leak(Box::new(Notes { root: root.clone(), synced: Mutex::default(), left: Mutex::new(None) }));
        let disk: &'static Disk = Box::leak(Box::new(Disk::new(notes)));
        let store = DurableLocal::open_on(&root, disk).unwrap();
        Rig { _folder: folder, notes, disk, store }
    }

    async fn write(&self, how: &str, new: &str) -> Result<()> {
        let (new, old) = (Path::from(new), Path::from("old"));
        let copy = async |mode| self.store.copy_opts(&old, &new, CopyOptions::new().with_mode(mode)).await;
        match how {
            "put" => {
                let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
                self.store.put_opts(&new, "bytes".into(), options).await.map(drop)
            }
            "replace" => self.store.put(&old, "bytes".into()).await.map(drop),
            "upload" => {
                let mut upload = self.store.put_multipart(&new).await?;
                upload.put_part("bytes".into()).await?;
                upload.complete().await.map(drop)
            }
            "link" => copy(CopyMode::Create).await,
            "link over" => copy(CopyMode::Overwrite).await,
            "adopt" => self.store.make_durable(&old).await,
            other => panic!("{other}"),
        }
    }

    fn synced(&self) -> Vec<String> {
        self.notes.synced.lock().unwrap().clone()
    }

    /// From now on only so many syncs succeed.
    fn fails_after(&self, left: Option<usize>) {
        *self.notes.left.lock().unwrap() = left;
    }
}

#[tokio::test]
async fn a_write_is_synced_before_it_has_its_name_and_its_folder_before_it_is_reported() {
    for (how, expected) in [
        // The folder above shows a new folder: it is synced last.
        ("put", &["temporary: old", "a: a/new old", "/: a/new old"][..]),
        ("replace", &["temporary: old", "/: old"]),
        // Each part as it comes, and the whole.
        ("upload", &["temporary: old", "temporary: old", "a: a/new old", "/: a/new old"]),
        // A link shows a file whose bytes were synced when it was written.
        ("link", &["a: a/new old", "/: a/new old"]),
        ("link over", &["a: a/new old", "/: a/new old"]),
        ("adopt", &["old: old", "/: old"]),
    ] {
        let rig = Rig::new();
        rig.write(how, "a/new").await.unwrap();
        assert_eq!(rig.synced(), expected, "{how}");
    }
}

#[tokio::test]
async fn the_parents_of_every_new_folder_are_synced() {
    let rig = Rig::new();
    DurableLocal::open_on(&rig.store.root().join("b/c"), rig.disk).unwrap();
    assert_eq!(rig.synced(), ["b: old", "/: old"]);
    rig.store.put(&Path::from("b/c/d/e/f"), "bytes".into()).await.unwrap();
    let shown = |folder| format!("{folder}: b/c/d/e/f old");
    let expected = ["temporary: old".to_owned(), shown("b/c/d/e"), shown("b/c/d"), shown("b/c")];
    assert_eq!(rig.synced()[2..], expected);
    rig.store.put(&Path::from("b/c/d/e/f"), "bytes".into()).await.unwrap();
    assert_eq!(rig.synced()[6..], [shown("temporary"), shown("b/c/d/e")], "once is enough");
}

#[tokio::test]
async fn who_writes_into_a_folder_that_another_has_just_made_makes_it_durable_too() {
    let rig = Rig::new();
    // As if the other had not come to its sync yet.
    rig.disk.make_folder(&rig.store.root().join("b/c")).unwrap();
    rig.store.put(&Path::from("b/c/d"), "bytes".into()).await.unwrap();
    let expected = ["temporary: old", "b/c: b/c/d old", "b: b/c/d old", "/: b/c/d old"];
    assert_eq!(rig.synced(), expected);
}

#[tokio::test]
async fn a_sync_that_fails_is_not_durable_and_nothing_is_written_any_more() {
    for how in WRITES {
        let all = Rig::new();
        all.write(how, "a/new").await.unwrap();
        for at in 0..all.synced().len() {
            let rig = Rig::new();
            rig.fails_after(Some(at));
            let error = store_error(rig.write(how, "a/new").await.expect_err("a sync failed"));
            assert_eq!(error.code(), code::NOT_DURABLE, "{how}, sync {at}: {error:?}");
            // The disk says that it is well again: what it lost meanwhile it does not say.
            rig.fails_after(None);
            let (asked, elsewhere) = (rig.synced().len(), tempfile::tempdir().unwrap());
            for again in WRITES {
                let error = store_error(rig.write(again, "a/again").await.expect_err("poisoned"));
                assert_eq!(error.code(), code::NOT_DURABLE, "{how}, sync {at}, then {again}: {error:?}");
            }
            let other = DurableLocal::open_on(elsewhere.path(), rig.disk).unwrap();
            let error = store_error(other.put(&Path::from("x"), "bytes".into()).await.expect_err("poisoned"));
            assert_eq!(error.code(), code::NOT_DURABLE, "another store of the process: {error:?}");
            assert_eq!(rig.synced().len(), asked, "{how}, sync {at}: no second sync reports success");
        }
    }
}

#[tokio::test]
async fn a_name_that_another_process_took_is_synced_before_it_is_adopted() {
    let rig = Rig::new();
    let location = Location::new(Arc::new(rig.store.clone()), "disk");
    let bound = Duration::from_secs(10);
    let adopted = create(&location, &SystemClock::default(), &Path::from("old"), "ours".into(), bound).await.unwrap();
    assert_eq!(adopted, Created::Lost("old".into()));
    assert_eq!(rig.synced(), ["temporary: old", "old: old", "/: old"]);
}

#[test]
fn the_system_is_really_asked() {
    // A device that cannot be synced says so.
    let path = std::path::Path::new("/dev/null");
    Fsync.sync(path, &File::open(path).unwrap()).expect_err("it cannot be synced");
    let file = tempfile::NamedTempFile::new().unwrap();
    Fsync.sync(file.path(), file.as_file()).unwrap();
}

#[test]
fn a_file_in_the_place_of_the_folder_is_refused_with_what_to_do() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = super::super::Stores::default().open(&file.path().to_string_lossy()).expect_err("it is a file");
    assert_eq!((error.code(), error.exit_code()), (code::STORE_REFUSED, 74));
    assert!(error.report().contains("name a folder"), "{}", error.report());
}
