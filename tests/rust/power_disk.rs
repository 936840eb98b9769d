//! A disk that loses power, and whose calls fail: what of it is there afterwards, and what is not.
//!
//! Owns what was synced: the content of each file, and the names in each directory. All else may be on the disk or
//! not, sector by sector and name by name, as the dice say. The files lie in a real directory, so that what is
//! written through a mapping counts too.
//!
//! Threads: the store's; a capture holds every call off until it is done.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lakemq_store::environment::{Disk, RealDisk};

use crate::dice::Dice;

const SECTOR: usize = 512;

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

/// The calls that fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    /// Syncs of this kind; any calls where none is named.
    pub of: Option<Synced>,
    /// Number of the first among them, counted from when the disk is told; the first is 1.
    pub number: usize,
    /// How many fail, one after the other.
    pub times: usize,
    pub error: i32,
    /// Percent of its bytes that a write leaves which fails.
    pub leaves: usize,
}

/// What a disk was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Write,
    Other,
}

/// A read that fails once; a short one answers with half of the bytes.
#[derive(Debug, Clone, Copy)]
pub enum FailingRead {
    With(i32),
    Short,
}

/// What is wrong with a disk beside its power.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ailment {
    /// Says that it synced such things, and does not.
    pub lies_about: Option<Synced>,
    pub failure: Option<Failure>,
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
    /// Sectors that a failed sync was about, with what stood there: the kernel holds them for clean, and no later sync
    /// brings them to the disk unless they are written again.
    forgotten: BTreeMap<usize, Vec<u8>>,
}

type OnCall = Box<dyn FnMut(&Durable, usize) + Send>;

/// What is on the disk for good.
pub struct Durable {
    root: PathBuf,
    files: HashMap<u64, Platter>,
    names: HashMap<PathBuf, BTreeMap<OsString, Node>>,
    asked: Vec<Call>,
}

struct State {
    durable: Durable,
    failure: Option<Failure>,
    /// Calls of the kind that fails.
    of_kind: usize,
    /// Calls that failed.
    failures: usize,
    /// Reads since the disk was told which fails, by whether one may be short.
    reads: Vec<bool>,
    failing_read: Option<(usize, FailingRead)>,
    /// The process is being killed: nothing that it still does counts.
    dying: bool,
    on_call: OnCall,
}

/// The disk below a directory.
pub struct PowerDisk {
    state: Mutex<State>,
    ailment: Ailment,
}

impl PowerDisk {
    /// All that is below `root` counts as synced. `on_call` is called before each call with its number.
    pub fn new(
        root: &Path,
        ailment: Ailment,
        on_call: impl FnMut(&Durable, usize) + Send + 'static,
    ) -> Self {
        let durable = Durable {
            root: root.to_owned(),
            files: HashMap::new(),
            names: HashMap::new(),
            asked: Vec::new(),
        };
        let state = State {
            durable,
            failure: ailment.failure,
            of_kind: 0,
            failures: 0,
            reads: Vec::new(),
            failing_read: None,
            dying: false,
            on_call: Box::new(on_call),
        };
        let disk = Self {
            state: Mutex::new(state),
            ailment,
        };
        disk.settle();
        disk
    }

    /// The calls so far.
    pub fn asked(&self) -> Vec<Call> {
        self.lock().durable.asked.clone()
    }

    /// How many calls failed so far.
    pub fn failures(&self) -> usize {
        self.lock().failures
    }

    /// Calls fail from now on as `failure` says; none where there is none.
    pub fn fail(&self, failure: Option<Failure>) {
        let mut state = self.lock();
        (state.failure, state.of_kind) = (failure, 0);
    }

    /// The read of this number fails from now on; none where there is none. Reads are counted by themselves: they change
    /// nothing, so that it is all the same where among them the power is cut.
    pub fn fail_read(&self, failing: Option<(usize, FailingRead)>) {
        let mut state = self.lock();
        (state.failing_read, state.reads) = (failing, Vec::new());
    }

    /// The reads since; true for those that may be short.
    pub fn reads(&self) -> Vec<bool> {
        self.lock().reads.clone()
    }

    /// Kills the process that holds what is dropped here: nothing that it does on its way reaches a file. What it
    /// wrote before is there for the next one, and as unsynced as it was.
    pub fn kill<T>(&self, process: T) {
        self.lock().dying = true;
        drop(process);
        self.lock().dying = false;
    }

    /// Loses the power, and goes on in `to` with what that leaves.
    pub fn lose_power(&self, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        self.look(|durable| durable.lose_power(unsynced, dice, to));
        to.clone_into(&mut self.lock().durable.root);
        self.settle();
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

    /// Counts a call; `Err` where it is the one that fails.
    fn called(&self) -> (MutexGuard<'_, State>, io::Result<()>) {
        self.called_for(None, Call::Other)
    }

    fn called_to_sync(&self, synced: Synced) -> (MutexGuard<'_, State>, io::Result<()>) {
        self.called_for(Some(synced), Call::Other)
    }

    fn called_for(
        &self,
        synced: Option<Synced>,
        call: Call,
    ) -> (MutexGuard<'_, State>, io::Result<()>) {
        let mut state = self.lock();
        if state.dying {
            return (state, Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        state.durable.asked.push(call);
        let State {
            durable, on_call, ..
        } = &mut *state;
        on_call(durable, durable.asked.len());
        let Some(failure) = state.failure.filter(|f| f.of.is_none() || f.of == synced) else {
            return (state, Ok(()));
        };
        state.of_kind += 1;
        if !(failure.number..failure.number + failure.times).contains(&state.of_kind) {
            return (state, Ok(()));
        }
        state.failures += 1;
        (state, Err(io::Error::from_raw_os_error(failure.error)))
    }

    /// Counts a read; how it fails where it is the one.
    fn called_to_read(&self, may_be_short: bool) -> io::Result<Option<FailingRead>> {
        let mut state = self.lock();
        if state.dying {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        state.reads.push(may_be_short);
        let number = state.reads.len();
        let fails = state.failing_read.filter(|(of, _)| *of == number);
        state.failures += usize::from(fails.is_some());
        match fails {
            Some((_, FailingRead::With(error))) => Err(io::Error::from_raw_os_error(error)),
            fails => Ok(fails.map(|(_, failing)| failing)),
        }
    }

    fn kind(&self, path: &Path, names: bool) -> Synced {
        self.lock().durable.kind(path, names)
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
        let inode = held.metadata()?.ino();
        let mut content = read_all(&held)?;
        let mut forgotten = BTreeMap::new();
        if let Some(before) = self.files.remove(&inode) {
            for (number, lost) in before.forgotten {
                if sector(&content, number) == lost {
                    let old = sector(&before.content, number);
                    let at = (number * SECTOR).min(content.len());
                    let end = (at + SECTOR).min(content.len());
                    content[at..end].copy_from_slice(&old[..end - at]);
                    forgotten.insert(number, lost);
                }
            }
        }
        self.files.insert(
            inode,
            Platter {
                file: held,
                content,
                forgotten,
            },
        );
        Ok(())
    }

    /// A sync of the file failed: what it was about counts as clean from now on.
    fn forget(&mut self, file: &File) -> io::Result<()> {
        let held = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let now = read_all(&held)?;
        let platter = self
            .files
            .entry(held.metadata()?.ino())
            .or_insert_with(|| Platter {
                file: held,
                content: Vec::new(),
                forgotten: BTreeMap::new(),
            });
        for number in 0..now.len().div_ceil(SECTOR) {
            let content = sector(&now, number);
            if content != sector(&platter.content, number) {
                platter.forgotten.insert(number, content);
            }
        }
        Ok(())
    }

    /// The file is written there: what a failed sync forgot is dirty again.
    fn written(&mut self, file: &File, offset: u64, length: usize) -> io::Result<()> {
        if let Some(platter) = self.files.get_mut(&file.metadata()?.ino()) {
            let (first, last) = (
                offset as usize / SECTOR,
                (offset as usize + length).div_ceil(SECTOR),
            );
            platter
                .forgotten
                .retain(|number, _| !(first..last).contains(number));
        }
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
                self.files.insert(
                    *inode,
                    Platter {
                        file,
                        content: Vec::new(),
                        forgotten: BTreeMap::new(),
                    },
                );
            }
        }
        let relative = self.relative(directory);
        // A directory that is not there any more is another one when it comes again.
        self.names.retain(|of, _| match of.strip_prefix(&relative) {
            Ok(below) => below
                .components()
                .next()
                .is_none_or(|first| names.contains_key(first.as_os_str())),
            Err(_) => true,
        });
        let before = self.names.insert(relative, names).unwrap_or_default();
        for node in before.into_values() {
            self.let_go(node)?;
        }
        Ok(())
    }

    /// Closes a file that has no name any more, neither on the disk nor else.
    fn let_go(&mut self, node: Node) -> io::Result<()> {
        let Node::File(inode) = node else {
            return Ok(());
        };
        let named = |names: &BTreeMap<_, _>| names.values().any(|other| *other == node);
        if let Some(platter) = self.files.get(&inode)
            && platter.file.metadata()?.nlink() == 0
            && !self.names.values().any(named)
        {
            self.files.remove(&inode);
        }
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
        let platter = self.files.get(&inode);
        let (old, new) = match platter {
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
        for number in 0..length.div_ceil(SECTOR) {
            let (then, now) = (sector(old, number), sector(&new, number));
            let forgotten =
                platter.is_some_and(|platter| platter.forgotten.get(&number) == Some(&now));
            let is_new = then != now && !forgotten && dice.in_a_hundred(chance);
            let at = number * SECTOR;
            let left = &(if is_new { now } else { then })[..SECTOR.min(length - at)];
            if left.iter().any(|byte| *byte != 0) {
                file.write_all_at(left, at as u64).expect("written");
            }
        }
    }
}

/// The content of a sector, zeros behind the end.
fn sector(of: &[u8], number: usize) -> Vec<u8> {
    let at = (number * SECTOR).min(of.len());
    let mut out = of[at..(at + SECTOR).min(of.len())].to_vec();
    out.resize(SECTOR, 0);
    out
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
    /// However full the machine's own is: a nearly full one expires more.
    fn used_ratio(&self, _path: &Path) -> io::Result<f64> {
        Ok(0.5)
    }

    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| options.open(path))
    }

    fn set_len(&self, file: &File, length: u64) -> io::Result<()> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| file.set_len(length))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| fs::rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| RealDisk.rename_new(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| fs::remove_file(path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| fs::create_dir(path))
    }

    /// One that fails takes the first of what is there.
    fn remove_tree(&self, directory: &Path) -> io::Result<()> {
        let (state, outcome) = self.called();
        if outcome.is_ok() {
            return fs::remove_dir_all(directory);
        }
        let first = if state.dying {
            None
        } else {
            listing(directory)?.into_iter().next()
        };
        match first {
            Some((name, Node::Directory)) => fs::remove_dir_all(directory.join(name))?,
            Some((name, Node::File(_))) => fs::remove_file(directory.join(name))?,
            None => {}
        }
        outcome
    }

    fn open_for_reading(&self, path: &Path) -> io::Result<File> {
        self.called_to_read(false)?;
        File::open(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.called_to_read(false)?;
        fs::read(path)
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = match self.called_to_read(bytes.len() > 1)? {
            Some(FailingRead::Short) => bytes.len() / 2,
            _ => bytes.len(),
        };
        file.read_at(&mut bytes[..length], offset)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        self.called_to_read(false)?;
        RealDisk.list(directory)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.called_to_read(false)?;
        fs::metadata(path)
    }

    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let (_state, outcome) = self.called();
        outcome.and_then(|()| RealDisk.allocate(file, offset, length))
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut state, outcome) = self.called_for(None, Call::Write);
        let leaves = state
            .failure
            .filter(|_| !state.dying)
            .map_or(0, |failure| failure.leaves);
        let count = match outcome {
            Ok(()) => bytes.len(),
            Err(_) => bytes.len() * leaves / 100,
        };
        if count > 0 {
            RealDisk.write(file, offset, &bytes[..count])?;
            state.durable.written(file, offset, count)?;
        }
        outcome
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let kind = self.kind(&path, false);
        let (mut state, outcome) = self.called_to_sync(kind);
        if outcome.is_err() {
            if !state.dying {
                state.durable.forget(file)?;
            }
            return outcome;
        }
        if self.ailment.lies_about != Some(kind) {
            state.durable.take_file(file)?;
        }
        Ok(())
    }

    fn begin_writeback(&self, _file: &File, _offset: u64, _length: u64) -> io::Result<()> {
        self.called().1
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let kind = self.kind(directory, true);
        let (mut state, outcome) = self.called_to_sync(kind);
        outcome?;
        let inside = directory.starts_with(&state.durable.root);
        if inside && self.ailment.lies_about != Some(kind) {
            state.durable.take_names(directory)?;
        }
        Ok(())
    }

    fn sync_file_system(&self, _any: &File) -> io::Result<()> {
        let (mut state, outcome) = self.called_to_sync(Synced::FileSystem);
        outcome?;
        if self.ailment.lies_about != Some(Synced::FileSystem) {
            let root = state.durable.root.clone();
            state.durable.take_all(&root)?;
        }
        Ok(())
    }
}
