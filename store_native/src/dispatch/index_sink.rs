//! Index entries of records.
//!
//! Invariants: what is put can be read at once: nothing is staged here.

use std::sync::Arc;

use super::sink::{Dispatched, Sink};
use crate::environment::Disk;
use crate::error::Result;
use crate::index::Index;

/// Puts keys into the index, which readers share.
pub(super) struct IndexSink {
    pub index: Arc<Index>,
    pub disk: Arc<dyn Disk>,
}

impl Sink for IndexSink {
    fn take(&mut self, dispatched: &Dispatched<'_>) -> Result<()> {
        self.index.put(dispatched.record, &*self.disk)
    }
}
