//! A disk that loses power: what of it is there afterwards, and what is not.
//!
//! Owns what was synced: the content of each file, and the names in each directory. All else may be on the disk or
//! not, sector by sector and name by name, as the dice say. The files lie in a real directory, so that what is
//! written through a mapping counts too.
//!
//! Threads: the store's; a capture holds every call off until it is done.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lakemq_store::environment::{Disk, RealDisk};

const SECTOR: usize = 512;

/// Numbers of chance, the same for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    pub fn in_a_hundred(&mut self, chance: u64) -> bool {
        self.roll() % 100 < chance
    }
}

/// What becomes of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    Lost,
    Kept,
    /// Every name is there; each sector is decided by itself, with a chance that differs from file to file.
    Torn,
    /// Each sector and each name is decided by itself, with a chance that differs from file to file.
    Mixed,
}

/// What a sync was about; a disk that lies does so for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    Log,
    LogNames,
    Queue,
    Index,
    Watermarks,
    Keys,
    Own,
    OwnNames,
    Config,
    ConfigNames,
    Root,
    RootNames,
    FileSystem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    File(u64),
    Directory,
}

/// A file as it was at its last sync. Held open, so that no other file gets its inode.
struct Platter {
    file: File,
    content: Vec<u8>,
}

type OnCall = Box<dyn FnMut(&Durable, usize) + Send>;

/// What is on the disk for good.
pub struct Durable {
    root: PathBuf,
    files: HashMap<u64, Platter>,
    names: HashMap<PathBuf, BTreeMap<OsString, Node>>,
    calls: usize,
}

struct State {
    durable: Durable,
    on_call: OnCall,
}

/// The disk below a directory.
pub struct PowerDisk {
    state: Mutex<State>,
    lies_about: Option<Synced>,
}

impl PowerDisk {
    /// All that is below `root` counts as synced. `on_call` is called before each call with its number. What
    /// `lies_about` names is said to be synced, and is not.
    pub fn new(
        root: &Path,
        lies_about: Option<Synced>,
        on_call: impl FnMut(&Durable, usize) + Send + 'static,
    ) -> Self {
        let durable = Durable {
            root: root.to_owned(),
            files: HashMap::new(),
            names: HashMap::new(),
            calls: 0,
        };
        let state = State {
            durable,
            on_call: Box::new(on_call),
        };
        let disk = Self {
            state: Mutex::new(state),
            lies_about,
        };
        disk.settle();
        disk
    }

    /// All that is there counts as synced.
    pub fn settle(&self) {
        let durable = &mut self.lock().durable;
        durable.files.clear();
        durable.names.clear();
        let root = durable.root.clone();
        durable.take_all(&root).expect("readable");
    }

    /// Shows what is there for good.
    pub fn look(&self, look: impl FnOnce(&Durable)) {
        look(&self.lock().durable);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn called(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.durable.calls += 1;
        let State { durable, on_call } = &mut *state;
        on_call(durable, durable.calls);
        state
    }

    fn keeps(&self, durable: &Durable, path: &Path, names: bool) -> bool {
        self.lies_about != Some(durable.kind(path, names))
    }
}

impl Durable {
    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }

    fn kind(&self, path: &Path, names: bool) -> Synced {
        let relative = self.relative(path);
        let first = relative
            .components()
            .next()
            .map(|c| c.as_os_str().to_owned());
        match (first.as_deref().and_then(|n| n.to_str()), names) {
            (Some("commitlog"), true) => Synced::LogNames,
            (Some("commitlog"), false) => Synced::Log,
            (Some("consumequeue"), _) => Synced::Queue,
            (Some("index"), _) => Synced::Index,
            (Some("config"), true) => Synced::ConfigNames,
            (Some("config"), false) => Synced::Config,
            (Some("lakemq"), true) => Synced::OwnNames,
            (Some("lakemq"), false) if relative.ends_with("watermarks") => Synced::Watermarks,
            (Some("lakemq"), false) if relative.ends_with("idempotence.keys") => Synced::Keys,
            (Some("lakemq"), false) => Synced::Own,
            (_, true) => Synced::RootNames,
            (_, false) => Synced::Root,
        }
    }

    fn take_all(&mut self, directory: &Path) -> io::Result<()> {
        self.take_names(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.take_all(&path)?;
            } else {
                self.take_file(&File::open(&path)?)?;
            }
        }
        Ok(())
    }

    fn take_file(&mut self, file: &File) -> io::Result<()> {
        let held = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let content = read_all(&held)?;
        self.files.insert(
            held.metadata()?.ino(),
            Platter {
                file: held,
                content,
            },
        );
        Ok(())
    }

    fn take_names(&mut self, directory: &Path) -> io::Result<()> {
        let names = listing(directory)?;
        for (name, node) in &names {
            if let Node::File(inode) = node
                && !self.files.contains_key(inode)
            {
                // Its name is there for good, its content is not.
                let file = File::open(directory.join(name))?;
                let content = Vec::new();
                self.files.insert(*inode, Platter { file, content });
            }
        }
        self.names.insert(self.relative(directory), names);
        Ok(())
    }

    /// Writes what a power cut now would leave to `to`.
    pub fn lose_power(&self, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        self.leave(Path::new(""), unsynced, dice, to);
    }

    fn leave(&self, relative: &Path, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        fs::create_dir_all(to).expect("a directory");
        let here = self.root.join(relative);
        let now = listing(&here).unwrap_or_default();
        let nothing = BTreeMap::new();
        let then = self.names.get(relative).unwrap_or(&nothing);
        let all: BTreeSet<&OsString> = now.keys().chain(then.keys()).collect();
        for name in all {
            let (old, new) = (then.get(name), now.get(name));
            let is_new = match unsynced {
                Unsynced::Lost => false,
                Unsynced::Kept | Unsynced::Torn => true,
                Unsynced::Mixed => dice.in_a_hundred(50),
            };
            match if is_new { new } else { old } {
                None => {}
                Some(Node::Directory) => {
                    self.leave(&relative.join(name), unsynced, dice, &to.join(name));
                }
                Some(Node::File(inode)) => {
                    self.leave_file(*inode, &here.join(name), unsynced, dice, &to.join(name));
                }
            }
        }
    }

    fn leave_file(&self, inode: u64, now: &Path, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        let nothing = Vec::new();
        let (old, new) = match self.files.get(&inode) {
            Some(platter) => (&platter.content, read_all(&platter.file)),
            None => (&nothing, File::open(now).and_then(|file| read_all(&file))),
        };
        let new = new.unwrap_or_default();
        let chance = match unsynced {
            Unsynced::Lost => 0,
            Unsynced::Kept => 100,
            Unsynced::Torn | Unsynced::Mixed => [0, 10, 50, 90, 100][dice.below(5)],
        };
        let length = if dice.in_a_hundred(chance) {
            new.len()
        } else {
            old.len()
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(to)
            .expect("a file");
        file.set_len(length as u64).expect("a length");
        for at in (0..length).step_by(SECTOR) {
            let end = (at + SECTOR).min(length);
            let sector = |of: &[u8]| {
                let mut out = of.get(at..end.min(of.len())).unwrap_or_default().to_vec();
                out.resize(end - at, 0);
                out
            };
            let (then, now) = (sector(old), sector(&new));
            let left = if then != now && dice.in_a_hundred(chance) {
                now
            } else {
                then
            };
            if left.iter().any(|byte| *byte != 0) {
                file.write_all_at(&left, at as u64).expect("written");
            }
        }
    }
}

fn listing(directory: &Path) -> io::Result<BTreeMap<OsString, Node>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // A file that is renamed meanwhile, by a call that this one does not hold off, is met under one name.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let node = if metadata.is_dir() {
            Node::Directory
        } else {
            Node::File(metadata.ino())
        };
        out.insert(entry.file_name(), node);
    }
    Ok(out)
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut reopened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    reopened.read_to_end(&mut out)?;
    Ok(out)
}

impl Disk for PowerDisk {
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        let _state = self.called();
        options.open(path)
    }

    fn set_len(&self, file: &File, length: u64) -> io::Result<()> {
        let _state = self.called();
        file.set_len(length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _state = self.called();
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _state = self.called();
        RealDisk.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let _state = self.called();
        fs::remove_file(path)
    }

    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let _state = self.called();
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _state = self.called();
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.called();
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if self.keeps(&state.durable, &path, false) {
            state.durable.take_file(file)?;
        }
        Ok(())
    }

    fn begin_writeback(&self, _file: &File, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.called();
        let inside = directory.starts_with(&state.durable.root);
        if inside && self.keeps(&state.durable, directory, true) {
            state.durable.take_names(directory)?;
        }
        Ok(())
    }

    fn sync_file_system(&self, _any: &File) -> io::Result<()> {
        let mut state = self.called();
        if self.lies_about != Some(Synced::FileSystem) {
            let root = state.durable.root.clone();
            state.durable.take_all(&root)?;
        }
        Ok(())
    }
}
