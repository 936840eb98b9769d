//! A page of words in a file, as the watermarks are.
//!
//! Invariants: under `cfg(loom)` its words are the checker's (`sync.rs`), so that what is checked is what is shipped.

/// A page of words that all see: a file, since other processes see it too.
#[cfg(not(loom))]
pub use crate::mapped_file::MappedFile as Page;
#[cfg(loom)]
pub use checked::Page;

#[cfg(loom)]
mod checked {
    use std::path::Path;

    use crate::environment::Disk;
    use crate::error::Result;
    use crate::mapped_file::MappedFile;
    use crate::sync::atomic::AtomicU64;

    /// As a mapped file, but its words are the checker's.
    #[derive(Debug)]
    pub struct Page {
        file: MappedFile,
        words: [AtomicU64; 16],
    }

    impl Page {
        fn over(file: MappedFile) -> Self {
            Self { file, words: std::array::from_fn(|_| AtomicU64::new(0)) }
        }

        pub fn open_owned(path: &Path, length: u64, allocate: u64, disk: &dyn Disk) -> Result<Self> {
            MappedFile::open_owned(path, length, allocate, disk).map(Self::over)
        }

        pub fn open_for_reading(path: &Path) -> Result<Self> {
            MappedFile::open_for_reading(path).map(Self::over)
        }

        pub fn ensure_allocated(&self, end: u64, chunk: u64, disk: &dyn Disk) -> Result<()> {
            self.file.ensure_allocated(end, chunk, disk)
        }

        pub fn len(&self) -> usize {
            self.file.len()
        }

        pub fn is_current(&self) -> bool {
            self.file.is_current()
        }

        pub fn sync(&self, disk: &dyn Disk) -> std::io::Result<()> {
            self.file.sync(disk)
        }

        /// # Panics
        /// Behind the sixteenth word.
        #[allow(clippy::indexing_slicing, reason = "a defect of the caller")]
        pub fn atomic_u64(&self, at: usize) -> &AtomicU64 {
            &self.words[at / 8]
        }
    }
}
