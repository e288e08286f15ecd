//! One model file, or the parts of a split one, opened and checked.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{GgufError, quoted};
use crate::header::{self, Header};
use crate::map::FileBytes;
use crate::metadata::Metadata;
use crate::split::PartName;
use crate::tensors::TensorInfo;

/// How the bytes of a file are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Map the file into memory, and read it whole only where it cannot be mapped.
    #[default]
    Map,
    /// Read the file whole. For storage where a file may shrink while it is open, which would end
    /// a process that has it mapped.
    Read,
}

/// One logical file: a model in one file or in several split parts, checked and in memory.
#[derive(Debug)]
pub struct Gguf {
    parts: Vec<Part>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<Box<str>, u32>,
    version: u32,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: FileBytes,
}

/// Where parts come from: the file system or memory.
type Load<'a> = dyn FnMut(&Path) -> io::Result<FileBytes> + 'a;

impl Gguf {
    /// Opens a file and, when it is part of a split model, all its parts.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        Gguf::open_with(path, Access::Map)
    }

    /// Opens a file and its parts with a chosen way of access.
    pub fn open_with(path: &Path, access: Access) -> Result<Gguf, GgufError> {
        Gguf::load(path, &mut |path| FileBytes::open(path, access))
    }

    /// A file that is in memory already; `name` stands for its path in errors.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Gguf::from_parts(vec![(name.to_owned(), bytes)])
    }

    /// Parts of a split model that are in memory already, by file name. The first in the list is
    /// the one that is opened; the others are found by the names that the format prescribes.
    pub fn from_parts(parts: Vec<(String, Vec<u8>)>) -> Result<Gguf, GgufError> {
        let first = parts.first().map(|(name, _)| PathBuf::from(name)).unwrap_or_default();
        let mut parts: Vec<_> = parts.into_iter().map(|(n, b)| (PathBuf::from(n), b)).collect();
        Gguf::load(&first, &mut |path| match parts.iter().position(|(name, _)| name == path) {
            Some(at) => Ok(FileBytes::Owned(parts.swap_remove(at).1)),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }

    fn load(path: &Path, load: &mut Load<'_>) -> Result<Gguf, GgufError> {
        let opened = load_part(path, load)?;
        let Some(split) = SplitKeys::read(&opened.1.metadata)? else {
            return Gguf::join(vec![opened], None);
        };
        let name = split.check_name(path)?;
        if split.index != 0 {
            tracing::info!(
                "{} is part {} of {}; opening the model through its first part {}",
                path.display(),
                name.number,
                name.count,
                name.sibling(path, 1).display()
            );
        }
        let mut opened = Some(opened);
        let mut parts = Vec::new();
        let mut declared = None;
        for index in 0..split.count {
            let part = match opened.take_if(|_| index == split.index) {
                Some(part) => part,
                None => load_sibling(path, &name, u32::from(index) + 1, load)?,
            };
            let found = SplitKeys::read(&part.1.metadata)?.unwrap_or_default();
            split.check_same(&part.0.path, &found, index)?;
            if index == 0 {
                declared = found.tensors;
            }
            parts.push(part);
        }
        Gguf::join(parts, declared)
    }

    /// Makes one logical file from parts; `declared` is the number of tensors that they should
    /// have together.
    fn join(parts: Vec<(Part, Header)>, declared: Option<u64>) -> Result<Gguf, GgufError> {
        let mut files = Vec::with_capacity(parts.len());
        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut first: Option<(Metadata, u32)> = None;
        for (index, (part, header)) in parts.into_iter().enumerate() {
            files.push(part);
            // `split.count` fits 16 bits.
            let part = index as u16;
            tensors.extend(header.tensors.into_iter().map(|t| TensorInfo { part, ..t }));
            first.get_or_insert((header.metadata, header.version));
        }
        let (metadata, version) = first.expect("a model has at least one part");
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (at, tensor) in tensors.iter().enumerate() {
            let earlier = by_name.insert(Box::from(tensor.name.as_str()), at as u32);
            if let Some(earlier) = earlier {
                let path = |t: &TensorInfo| files[usize::from(t.part)].path.clone();
                return Err(GgufError::DuplicateTensor {
                    file: path(tensor),
                    tensor: quoted(tensor.name.as_bytes()),
                    other: path(&tensors[earlier as usize]),
                });
            }
        }
        if let Some(wanted) = declared
            && wanted != tensors.len() as u64
        {
            return Err(GgufError::Split {
                file: metadata.file().to_path_buf(),
                what: "the number of tensors in all parts (split.tensors.count)",
                wanted: wanted.to_string(),
                found: tensors.len().to_string(),
            });
        }
        Ok(Gguf { parts: files, metadata, tensors, by_name, version })
    }

    /// Keys and values (of the first part, which holds all of a split model).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&at| &self.tensors[at as usize])
    }

    /// The bytes of a tensor of this file.
    ///
    /// In the file they start at a multiple of the alignment (32 as a rule, but a file may choose
    /// 1), so a view as wider numbers has to be checked.
    ///
    /// # Panics
    /// When `tensor` comes from another file and names bytes that this one does not have.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        let (part, range) = self.locate(tensor).expect("the tensor belongs to this file");
        &part.bytes.as_slice()[range]
    }

    /// Asks the system to start reading a tensor's bytes from disk; returns at once.
    pub fn prefetch(&self, tensor: &TensorInfo) {
        if let Some((part, range)) = self.locate(tensor) {
            part.bytes.prefetch(range);
        }
    }

    /// Tells the system that a tensor's bytes need not stay in memory, as when a device has them;
    /// they are read from disk again at the next access.
    pub fn release(&self, tensor: &TensorInfo) {
        if let Some((part, range)) = self.locate(tensor) {
            part.bytes.release(range);
        }
    }

    fn locate(&self, tensor: &TensorInfo) -> Option<(&Part, Range<usize>)> {
        let part = self.parts.get(usize::from(tensor.part))?;
        let start = usize::try_from(tensor.offset).ok()?;
        let end = start.checked_add(usize::try_from(tensor.bytes).ok()?)?;
        (end <= part.bytes.as_slice().len()).then_some((part, start..end))
    }

    /// Path of the first part.
    pub fn path(&self) -> &Path {
        self.metadata.file()
    }

    /// Path of a part, as numbered in [`TensorInfo::part`].
    pub fn part_path(&self, part: u16) -> Option<&Path> {
        self.parts.get(usize::from(part)).map(|p| p.path.as_path())
    }

    /// Number of parts: 1 unless the model is split.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of all parts together.
    pub fn file_size(&self) -> u64 {
        self.parts.iter().map(|p| p.bytes.as_slice().len() as u64).sum()
    }

    /// Version of the container: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }
}

fn load_part(path: &Path, load: &mut Load<'_>) -> Result<(Part, Header), GgufError> {
    let bytes = load(path).map_err(|source| GgufError::Io {
        file: path.to_path_buf(),
        doing: "cannot open the file",
        source,
    })?;
    let header = header::parse(path, bytes.as_slice())?;
    Ok((Part { path: path.to_path_buf(), bytes }, header))
}

/// Loads part `number` (from 1) of the model that was opened as `opened`.
fn load_sibling(
    opened: &Path,
    name: &PartName,
    number: u32,
    load: &mut Load<'_>,
) -> Result<(Part, Header), GgufError> {
    let sibling = name.sibling(opened, number);
    match load_part(&sibling, load) {
        Err(GgufError::Io { source, .. }) => Err(GgufError::MissingPart {
            file: opened.to_path_buf(),
            missing: sibling,
            number,
            count: name.count,
            reason: source.to_string(),
        }),
        other => other,
    }
}

/// The keys that a part of a split model carries.
#[derive(Debug, Clone, Copy, Default)]
struct SplitKeys {
    /// Number of the part, from 0.
    index: u16,
    count: u16,
    /// Number of tensors in all parts.
    tensors: Option<u64>,
}

impl SplitKeys {
    /// The split keys, nothing when the file is a whole model.
    fn read(metadata: &Metadata) -> Result<Option<SplitKeys>, GgufError> {
        let small = |key| match metadata.u32(key)? {
            None => Ok(None),
            Some(v) => match u16::try_from(v) {
                Ok(v) => Ok(Some(v)),
                Err(_) => Err(metadata.out_of_range(key, "at most 65535", v.to_string())),
            },
        };
        let count = small("split.count")?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let index = small("split.no")?.ok_or_else(|| metadata.missing("split.no"))?;
        if index >= count {
            let found = format!("{index} with split.count {count}");
            return Err(metadata.out_of_range("split.no", "below split.count", found));
        }
        let tensors = metadata.u64("split.tensors.count")?;
        Ok(Some(SplitKeys { index, count, tensors }))
    }

    /// The other parts are found by name, so the name has to agree with the keys.
    fn check_name(&self, path: &Path) -> Result<PartName, GgufError> {
        let number = u32::from(self.index) + 1;
        let count = u32::from(self.count);
        match PartName::parse(path) {
            Some(name) if name.number == number && name.count == count => Ok(name),
            _ => Err(GgufError::Split {
                file: path.to_path_buf(),
                what: "the file name of this part (the others are found by it)",
                wanted: format!("<name>-{number:05}-of-{count:05}.gguf"),
                found: quoted(path.file_name().unwrap_or_default().as_encoded_bytes()),
            }),
        }
    }

    fn check_same(&self, file: &Path, found: &SplitKeys, index: u16) -> Result<(), GgufError> {
        let error = |what, wanted: u16, found: u16| GgufError::Split {
            file: file.to_path_buf(),
            what,
            wanted: wanted.to_string(),
            found: found.to_string(),
        };
        if found.count != self.count {
            return Err(error("the number of parts (split.count)", self.count, found.count));
        }
        if found.index != index {
            return Err(error("the number of this part (split.no)", index, found.index));
        }
        Ok(())
    }
}
