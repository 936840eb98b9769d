//! A disk that loses power, and whose calls fail: what of it is there afterwards, and what is not.
//!
//! Owns the calls: which of them fails, what it leaves, and what each adds to what was synced (`durable`). All else may
//! be on the disk or not, sector by sector and name by name, as the dice say (`power_cut`). The files lie in a real
//! directory, so that what is written through a mapping counts too.
//!
//! Threads: the store's; a capture holds every call off until it is done.

mod ailment;
mod durable;
mod power_cut;

use std::fs::{self, DirEntry, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lakemq_store::environment::{Disk, RealDisk};

pub use self::ailment::{Ailment, Call, FailingRead, Failure, Synced};
pub use self::durable::Durable;
pub use self::power_cut::Unsynced;

use self::durable::{Node, listing};
use crate::dice::Dice;

type OnCall = Box<dyn FnMut(&Durable, usize) + Send>;

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
        let state = State {
            durable: Durable::below(root),
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
        self.lock().durable.settle().expect("readable");
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
