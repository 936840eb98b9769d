//! What is on a disk for good.
//!
//! Owns the content of each file and the names in each directory as they were at their last sync, and which sectors
//! a failed sync forgot.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ailment::{Call, Synced};

pub(super) const SECTOR: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    File(u64),
    Directory,
}

/// A file as it was at its last sync. Held open, so that no other file gets its inode.
pub(super) struct Platter {
    pub(super) file: File,
    pub(super) content: Vec<u8>,
    /// Sectors that a failed sync was about, with what stood there: the kernel holds them for clean, and no later sync
    /// brings them to the disk unless they are written again.
    pub(super) forgotten: BTreeMap<usize, Vec<u8>>,
}

/// What is on the disk for good.
pub struct Durable {
    pub(super) root: PathBuf,
    pub(super) files: HashMap<u64, Platter>,
    pub(super) names: HashMap<PathBuf, BTreeMap<OsString, Node>>,
    pub(super) asked: Vec<Call>,
}

impl Durable {
    /// Nothing yet, of what is below `root`.
    pub(super) fn below(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            files: HashMap::new(),
            names: HashMap::new(),
            asked: Vec::new(),
        }
    }

    /// All that is there counts as synced.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.files.clear();
        self.names.clear();
        let root = self.root.clone();
        self.take_all(&root)
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }

    pub(super) fn kind(&self, path: &Path, names: bool) -> Synced {
        Synced::of(&self.relative(path), names)
    }

    pub(super) fn take_all(&mut self, directory: &Path) -> io::Result<()> {
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

    pub(super) fn take_file(&mut self, file: &File) -> io::Result<()> {
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
    pub(super) fn forget(&mut self, file: &File) -> io::Result<()> {
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
    pub(super) fn written(&mut self, file: &File, offset: u64, length: usize) -> io::Result<()> {
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

    pub(super) fn take_names(&mut self, directory: &Path) -> io::Result<()> {
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
}

/// The content of a sector, zeros behind the end.
pub(super) fn sector(of: &[u8], number: usize) -> Vec<u8> {
    let at = (number * SECTOR).min(of.len());
    let mut out = of[at..(at + SECTOR).min(of.len())].to_vec();
    out.resize(SECTOR, 0);
    out
}

pub(super) fn listing(directory: &Path) -> io::Result<BTreeMap<OsString, Node>> {
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

pub(super) fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut reopened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    reopened.read_to_end(&mut out)?;
    Ok(out)
}
