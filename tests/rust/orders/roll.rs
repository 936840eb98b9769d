//! The next log file: made by one thread, taken by another, dropped by a third.

use std::path::Path;
use std::sync::Arc;

use lakemq_store::commitlog::CommitLog;
use lakemq_store::commitlog::next_file::NextFile;
use lakemq_store::environment::Environment;
use loom::thread;

const SIZE: u64 = 4096;

struct Rolling {
    dir: tempfile::TempDir,
    log: CommitLog,
    next: NextFile,
    environment: Environment,
}

impl Rolling {
    fn new() -> Arc<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        let environment = Environment::real("").expect("randomness");
        let disk = &*environment.disk;
        let (commitlog, ahead) = (dir.path().join("commitlog"), dir.path().join("lakemq"));
        std::fs::create_dir(&ahead).expect("a directory");
        let log = CommitLog::open_owned(&commitlog, SIZE, |_| Ok(true), disk).expect("a log");
        let next = NextFile::open(&ahead, SIZE, disk).expect("nothing is left");
        Arc::new(Self {
            dir,
            log,
            next,
            environment,
        })
    }

    fn roll(&self) {
        let base = self.log.capacity_end();
        let file = self.next.enter(base, &self.log, &self.environment);
        assert_eq!(file.expect("entered").base, base);
    }

    fn make_ahead(&self) {
        let made = self.next.make_ahead(&self.log, &self.environment);
        made.expect("made");
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let directory: &Path = &self.dir.path().join(directory);
        let names = std::fs::read_dir(directory).expect("names");
        let mut names: Vec<_> = names
            .map(|name| {
                name.expect("a name")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }
}

#[test]
fn test_whoever_comes_first_the_log_has_its_files_and_none_is_left() {
    loom::model(|| {
        let rolling = Rolling::new();
        let maintenance = {
            let rolling = Arc::clone(&rolling);
            thread::spawn(move || rolling.make_ahead())
        };
        let stop = {
            let rolling = Arc::clone(&rolling);
            thread::spawn(move || rolling.next.discard(&*rolling.environment.disk))
        };
        rolling.roll();
        rolling.roll();
        maintenance.join().expect("no panic");
        stop.join().expect("no panic");
        // What the last of them left is dropped at the end.
        rolling.next.discard(&*rolling.environment.disk);
        let bases: Vec<_> = rolling.log.files().iter().map(|file| file.base).collect();
        assert_eq!(bases, [0, SIZE as i64]);
        assert_eq!(
            rolling.names("commitlog"),
            [format!("{:020}", 0), format!("{SIZE:020}")]
        );
        assert!(rolling.names("lakemq").is_empty());
        assert!(
            rolling
                .log
                .files()
                .iter()
                .all(|file| file.file.is_current())
        );
    });
}
