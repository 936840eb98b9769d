//! All consume queues of a store, found by topic and queue id.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::queue::{Access, Queue};
use crate::environment::Disk;
use crate::error::{Result, StoreError};

/// Mapped queue files kept at most; beyond it those longest unused are closed.
const MAX_OPEN_FILES: usize = 4096;

type Topics = HashMap<Box<str>, Vec<Option<Arc<Queue>>>>;

/// The queues. A queue appears when its first message is dispatched.
#[derive(Debug)]
pub struct QueueTable {
    directory: PathBuf,
    access: Access,
    topics: RwLock<Topics>,
    tick: AtomicI64,
}

impl QueueTable {
    /// Opens every queue found under `directory`.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open(directory: &Path, access: Access) -> Result<Self> {
        let table = Self {
            directory: directory.to_owned(),
            access,
            topics: RwLock::default(),
            tick: AtomicI64::new(0),
        };
        for topic in table.topics_on_disk()? {
            table.load_topic(&topic)?;
        }
        Ok(table)
    }

    /// Names of the topics that have a directory.
    ///
    /// # Errors
    /// Any I/O error but a missing directory.
    pub fn topics_on_disk(&self) -> Result<Vec<String>> {
        subdirectories(&self.directory)
    }

    /// Opens the queues of `topic` that appeared on disk since.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn load_topic(&self, topic: &str) -> Result<()> {
        for name in subdirectories(&self.directory.join(topic))? {
            if let Ok(queue_id) = name.parse::<u32>() {
                self.get_or_create(topic, queue_id)?;
            }
        }
        Ok(())
    }

    /// The queue, when it exists.
    pub fn get(&self, topic: &str, queue_id: u32) -> Option<Arc<Queue>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let queue = topics.get(topic)?.get(queue_id as usize)?.clone()?;
        queue.touch(self.tick.load(Ordering::Relaxed));
        Some(queue)
    }

    /// The queue, made when it does not exist.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn get_or_create(&self, topic: &str, queue_id: u32) -> Result<Arc<Queue>> {
        if let Some(queue) = self.get(topic, queue_id) {
            return Ok(queue);
        }
        let queue =
            Arc::new(Queue::open(&self.directory.join(topic).join(queue_id.to_string()), self.access)?);
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let queues = topics.entry(topic.into()).or_default();
        let index = queue_id as usize;
        if queues.len() <= index {
            queues.resize_with(index + 1, || None);
        }
        Ok(Arc::clone(queues[index].get_or_insert(queue)))
    }

    /// Every queue, in no particular order.
    pub fn all(&self) -> Vec<(String, u32, Arc<Queue>)> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut out = Vec::new();
        for (topic, queues) in topics.iter() {
            for (id, queue) in queues.iter().enumerate() {
                if let Some(queue) = queue {
                    out.push((topic.to_string(), id as u32, Arc::clone(queue)));
                }
            }
        }
        out
    }

    /// The queues of one topic, by id.
    pub fn of_topic(&self, topic: &str) -> Vec<(u32, Arc<Queue>)> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let queues = topics.get(topic).map(Vec::as_slice).unwrap_or_default();
        queues.iter().enumerate().filter_map(|(id, q)| Some((id as u32, q.clone()?))).collect()
    }

    /// Forgets a topic's queues; their files stay (readers).
    pub fn forget_topic(&self, topic: &str) {
        self.topics.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    /// Forgets all queues; their files stay (readers).
    pub fn forget_all(&self) {
        self.topics.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets a topic's queues and deletes their files.
    ///
    /// # Errors
    /// Any I/O error but a missing directory.
    pub fn remove_topic(&self, topic: &str) -> Result<()> {
        self.forget_topic(topic);
        match std::fs::remove_dir_all(self.directory.join(topic)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io(format!("removing the queues of {topic}"), error))
            }
            _ => Ok(()),
        }
    }

    /// Syncs every queue written since the last call.
    ///
    /// # Errors
    /// The first error of the disk.
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        for (_, _, queue) in self.all() {
            queue.sync(disk)?;
        }
        Ok(())
    }

    /// Closes files of the queues longest unused when too many are mapped.
    pub fn close_unused(&self) {
        self.tick.fetch_add(1, Ordering::Relaxed);
        let mut queues: Vec<_> = self.all().into_iter().map(|(_, _, q)| (q.last_used(), q)).collect();
        let mut open: usize = queues.iter().map(|(_, q)| q.open_files()).sum();
        queues.sort_by_key(|(used, _)| *used);
        for (_, queue) in queues {
            if open <= MAX_OPEN_FILES {
                return;
            }
            let before = queue.open_files();
            queue.close_files();
            open = open.saturating_sub(before - queue.open_files());
        }
    }
}

fn subdirectories(directory: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(format!("listing {}", directory.display()), error)),
    };
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| StoreError::io(format!("listing {}", directory.display()), e))?;
        if entry.file_type().is_ok_and(|t| t.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            out.push(name);
        }
    }
    out.sort_unstable();
    Ok(out)
}
