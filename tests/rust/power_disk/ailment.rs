//! What is asked of a disk, and what is wrong with it.
//!
//! Owns the kinds of what is synced, by where it lies, and the calls that fail. Values only.

use std::path::Path;

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

impl Synced {
    /// `relative` is below the store's root; `names` where a directory is synced.
    pub(super) fn of(relative: &Path, names: bool) -> Self {
        let first = relative
            .components()
            .next()
            .map(|c| c.as_os_str().to_owned());
        match (first.as_deref().and_then(|n| n.to_str()), names) {
            (Some("commitlog"), true) => Self::LogNames,
            (Some("commitlog"), false) => Self::Log,
            (Some("consumequeue"), _) => Self::Queue,
            (Some("index"), _) => Self::Index,
            (Some("config"), true) => Self::ConfigNames,
            (Some("config"), false) => Self::Config,
            (Some("lakemq"), true) => Self::OwnNames,
            (Some("lakemq"), false) if relative.ends_with("watermarks") => Self::Watermarks,
            (Some("lakemq"), false) if relative.ends_with("idempotence.keys") => Self::Keys,
            (Some("lakemq"), false) => Self::Own,
            (_, true) => Self::RootNames,
            (_, false) => Self::Root,
        }
    }
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
