//! The module `isthmus_core`: Python's view of the other files, and the only one with pyo3.
//!
//! What each class and function is for stands in `relay/batches/packed_entries.py` and `opened_batch.py`.

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice, PyString, PyTuple};

use crate::amqp::{cut, next_delivery, Delivery, Publishes, Step};
use crate::columns::{IdentityRule, Incoming, Layout, Limits, NewEntry, Offer, OpenColumns, Rules};
use crate::identity::{CONTENT_KEPT, IDENTITY_BYTES, RANDOM_BYTES};
use crate::properties;

enum Item {
    /// Spans of the block's read.
    Whole(Delivery),
    /// Put together by the twin from several reads.
    Assembled(Py<PyTuple>),
}

/// Deliveries of one read to one consumer.
#[pyclass(sequence, module = "isthmus_core")]
struct DeliveryBlock {
    data: Py<PyBytes>,
    items: Vec<Item>,
}

fn text<'py>(py: Python<'py>, raw: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(raw) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, raw).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}

impl DeliveryBlock {
    fn tuple<'py>(&self, py: Python<'py>, item: &Item) -> PyResult<Bound<'py, PyTuple>> {
        let delivery = match item {
            Item::Assembled(tuple) => return Ok(tuple.bind(py).clone()),
            Item::Whole(delivery) => delivery,
        };
        let data = self.data.as_bytes(py);
        (
            delivery.tag,
            delivery.redelivered,
            text(py, cut(data, delivery.exchange))?,
            PyBytes::new(py, cut(data, delivery.routing_key)),
            PyBytes::new(py, cut(data, delivery.properties)),
            PyBytes::new(py, cut(data, delivery.body)),
        )
            .into_pyobject(py)
    }
}

#[pymethods]
impl DeliveryBlock {
    #[new]
    fn new(data: Bound<'_, PyBytes>) -> Self {
        DeliveryBlock { data: data.unbind(), items: Vec::with_capacity(64) }
    }

    fn __len__(&self) -> usize {
        self.items.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        at: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = at.downcast::<PySlice>() {
            let range = slice.indices(self.items.len() as isize)?;
            let found = PyList::empty(py);
            let mut number = range.start;
            for _ in 0..range.slicelength {
                found.append(self.tuple(py, &self.items[number as usize])?)?;
                number += range.step;
            }
            return Ok(found.into_any());
        }
        let number: isize =
            at.extract().map_err(|_| PyTypeError::new_err("an index or a slice"))?;
        let count = self.items.len() as isize;
        let number = if number < 0 { number + count } else { number };
        if number < 0 || number >= count {
            return Err(PyIndexError::new_err("no such delivery"));
        }
        Ok(self.tuple(py, &self.items[number as usize])?.into_any())
    }

    fn append(&mut self, delivery: Bound<'_, PyTuple>) {
        self.items.push(Item::Assembled(delivery.unbind()));
    }

    #[getter]
    fn last_tag(&self, py: Python<'_>) -> PyResult<u64> {
        match self.items.last() {
            Some(Item::Whole(delivery)) => Ok(delivery.tag),
            Some(Item::Assembled(tuple)) => tuple.bind(py).get_item(0)?.extract(),
            None => Err(PyIndexError::new_err("no delivery")),
        }
    }
}

#[pyfunction]
fn scan_deliveries(
    py: Python<'_>,
    data: &Bound<'_, PyBytes>,
    position: usize,
    largest: usize,
    block_of: &Bound<'_, PyAny>,
) -> PyResult<(usize, bool)> {
    let bytes = data.as_bytes();
    if bytes.len() > u32::MAX as usize {
        return Ok((position, false));
    }
    let mut position = position;
    let mut route: (&[u8], &[u8]) = (&[], &[]);
    let mut block: Option<Bound<'_, DeliveryBlock>> = None;
    loop {
        let found = match next_delivery(bytes, position, largest) {
            Step::Found(found) => found,
            Step::BadNames => return Ok((position, true)),
            Step::Stop => return Ok((position, false)),
        };
        if block.is_none() || route != (found.start, found.consumer) {
            route = (found.start, found.consumer);
            let names = (PyBytes::new(py, found.start), PyBytes::new(py, found.consumer));
            block = Some(block_of.call1(names)?.downcast_into::<DeliveryBlock>()?);
        }
        if let Some(block) = &block {
            block.borrow_mut().items.push(Item::Whole(found.delivery));
        }
        position = found.end;
    }
}

#[pyclass(module = "isthmus_core")]
struct IntakeRules {
    rules: Rules,
}

#[pymethods]
impl IntakeRules {
    #[new]
    fn new(kind: &str, header: Vec<u8>, relay_users: Vec<Vec<u8>>) -> PyResult<Self> {
        let identity = match kind {
            "uuid" => IdentityRule::Uuid,
            "message_id" => IdentityRule::MessageId,
            "header" => IdentityRule::Header(header),
            "content" => IdentityRule::Content,
            "none" => IdentityRule::None,
            _ => return Err(PyValueError::new_err(format!("no identity by {}", kind))),
        };
        Ok(IntakeRules { rules: Rules::new(identity, relay_users) })
    }

    fn learn(&mut self, table: &[u8], own: bool) {
        self.rules.learn(table, own);
    }
}

/// Why `OpenBatch.take` stopped; see STOP_ODD in relay/batches/packed_entries.py.
const TAKEN: u8 = 0;
const FULL: u8 = 1;
const ODD: u8 = 2;
const RANDOM: u8 = 3;

#[pyclass(module = "isthmus_core")]
#[derive(Default)]
struct OpenBatch {
    columns: OpenColumns,
    /// What bodies are spans of: reads of a socket, or objects of the twin's.
    buffers: Vec<Py<PyBytes>>,
}

/// A body that may be `bytes`, or a `bytearray` that is handed over.
fn as_bytes<'py>(body: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match body.downcast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => {
            let copied = body.py().get_type::<PyBytes>().call1((body,))?;
            Ok(copied.downcast_into()?)
        }
    }
}

/// Times after `base_ms` (or before), as a ledger's column: see `pack_offsets`.
fn offsets<'py>(
    py: Python<'py>,
    times_ms: impl Iterator<Item = u64>,
    base_ms: u64,
) -> Bound<'py, PyBytes> {
    let most = i128::from(i32::MAX);
    let packed: Vec<u8> = times_ms
        .flat_map(|time_ms| {
            let after = (i128::from(time_ms) - i128::from(base_ms)).clamp(-most, most);
            (after as i32).to_le_bytes()
        })
        .collect();
    PyBytes::new(py, &packed)
}

#[pymethods]
impl OpenBatch {
    #[new]
    fn new() -> Self {
        OpenBatch::default()
    }

    fn __len__(&self) -> usize {
        self.columns.len()
    }

    #[getter]
    fn size(&self) -> usize {
        self.columns.size
    }

    fn append(&mut self, entry: &Bound<'_, PyTuple>) -> PyResult<()> {
        let identity: Bound<'_, PyBytes> = entry.get_item(0)?.downcast_into()?;
        let identity = identity
            .as_bytes()
            .try_into()
            .map_err(|_| PyValueError::new_err("an identity has 16 bytes"))?;
        let routing_key: Bound<'_, PyBytes> = entry.get_item(1)?.downcast_into()?;
        let properties: Bound<'_, PyBytes> = entry.get_item(2)?.downcast_into()?;
        let body = as_bytes(&entry.get_item(3)?)?;
        self.columns.push(&NewEntry {
            identity,
            routing_key: routing_key.as_bytes(),
            properties: properties.as_bytes(),
            body: (self.buffers.len() as u32, 0, body.as_bytes().len() as u32),
            published_ms: entry.get_item(4)?.extract()?,
            deadline_ms: entry.get_item(5)?.extract()?,
            doubtful: entry.get_item(6)?.is_truthy()?,
        });
        self.buffers.push(body.unbind());
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self,
        py: Python<'_>,
        block: &DeliveryBlock,
        first: usize,
        rules: &IntakeRules,
        now_ms: u64,
        random: &[u8],
        most_entries: usize,
        most_bytes: usize,
        big_above: usize,
    ) -> (usize, u8, u64, u64, usize, usize) {
        let data = block.data.as_bytes(py);
        let limits = Limits { entries: most_entries, bytes: most_bytes, big_above };
        let buffer = self.buffers.len() as u32;
        let (mut passed_tag, mut packed_tag, mut used, mut own) = (0, 0, 0, 0);
        let mut number = first;
        let mut why = TAKEN;
        while let Some(item) = block.items.get(number) {
            let delivery = match item {
                Item::Whole(delivery) if !delivery.redelivered => delivery,
                _ => {
                    why = ODD;
                    break;
                }
            };
            let message = Incoming {
                routing_key: cut(data, delivery.routing_key),
                properties: cut(data, delivery.properties),
                body: cut(data, delivery.body),
            };
            let from = delivery.body.0;
            let body = (buffer, from, from + message.body.len() as u32);
            let left = random.get(used..).unwrap_or(&[]);
            let (offer, is_made) =
                self.columns.offer(&rules.rules, &message, body, now_ms, left, limits);
            match offer {
                Offer::Packed => {
                    packed_tag = delivery.tag;
                    used += if is_made { RANDOM_BYTES } else { 0 };
                }
                Offer::Own => {
                    own += 1;
                    // Behind a packed message it waits with that one.
                    if self.columns.is_empty() {
                        passed_tag = delivery.tag;
                    } else {
                        packed_tag = delivery.tag;
                    }
                }
                Offer::Full => why = FULL,
                Offer::Odd => why = ODD,
                Offer::Random => why = RANDOM,
            }
            if why != TAKEN {
                break;
            }
            number += 1;
            if self.columns.len() >= limits.entries {
                why = FULL;
                break;
            }
        }
        if packed_tag != 0 {
            self.buffers.push(block.data.clone_ref(py));
        }
        (number, why, passed_tag, packed_tag, used, own)
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let buffers: Vec<&[u8]> = self.buffers.iter().map(|buffer| buffer.as_bytes(py)).collect();
        let bytes = self
            .columns
            .bytes(&buffers)
            .ok_or_else(|| PyValueError::new_err("the batch's columns cannot be made"))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn drop_messages(&mut self) {
        self.columns.drop_messages();
        self.buffers = Vec::new();
    }

    #[getter]
    fn first_published_ms(&self) -> PyResult<u64> {
        self.columns.published.first().copied().ok_or_else(|| PyIndexError::new_err("no entry"))
    }

    #[getter]
    fn last_published_ms(&self) -> PyResult<u64> {
        self.columns.published.last().copied().ok_or_else(|| PyIndexError::new_err("no entry"))
    }

    fn identities<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.columns.identities)
    }

    fn published(&self) -> Vec<u64> {
        self.columns.published.clone()
    }

    fn published_offsets<'py>(&self, py: Python<'py>, base_ms: u64) -> Bound<'py, PyBytes> {
        offsets(py, self.columns.published.iter().copied(), base_ms)
    }
}

#[pyclass(frozen, module = "isthmus_core")]
struct Stamp {
    stamp: properties::Stamp,
}

#[pymethods]
impl Stamp {
    #[new]
    fn new(added: Vec<u8>, user: Vec<u8>, cluster_id: Vec<u8>) -> Self {
        Stamp { stamp: properties::Stamp { added, user, cluster_id } }
    }
}

#[pyclass(frozen, module = "isthmus_core")]
struct OpenedBatch {
    columns: Py<PyBytes>,
    layout: Layout,
    first_ms: u64,
    contents: Vec<u8>,
}

impl OpenedBatch {
    fn check(&self, begin: usize, end: usize) -> PyResult<()> {
        if begin <= end && end <= self.layout.len() {
            Ok(())
        } else {
            Err(PyIndexError::new_err("no such entries"))
        }
    }

    fn slices<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        size: usize,
        prefix: &[u8],
        range: (usize, usize),
    ) -> PyResult<Bound<'py, PyList>> {
        self.check(range.0, range.1)?;
        let mut made = prefix.to_vec();
        let found = (range.0..range.1)
            .map(|number| {
                made.truncate(prefix.len());
                made.extend_from_slice(&bytes[size * number..size * (number + 1)]);
                PyBytes::new(py, &made)
            })
            .collect::<Vec<_>>();
        PyList::new(py, found)
    }
}

#[pymethods]
impl OpenedBatch {
    #[new]
    fn new(py: Python<'_>, columns: Bound<'_, PyBytes>, n: usize, first_ms: u64) -> PyResult<Self> {
        let bytes = columns.as_bytes();
        let layout = Layout::read(bytes, n).map_err(PyValueError::new_err)?;
        let contents = py.allow_threads(|| layout.content_hashes(bytes));
        Ok(OpenedBatch { columns: columns.unbind(), layout, first_ms, contents })
    }

    fn __len__(&self) -> usize {
        self.layout.len()
    }

    fn keys<'py>(
        &self,
        py: Python<'py>,
        prefix: &[u8],
        begin: usize,
        end: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        self.slices(py, self.columns.as_bytes(py), IDENTITY_BYTES, prefix, (begin, end))
    }

    fn contents<'py>(
        &self,
        py: Python<'py>,
        begin: usize,
        end: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        self.slices(py, &self.contents, CONTENT_KEPT, &[], (begin, end))
    }

    fn identities<'py>(
        &self,
        py: Python<'py>,
        begin: usize,
        end: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check(begin, end)?;
        let columns = self.columns.as_bytes(py);
        Ok(PyBytes::new(py, &columns[IDENTITY_BYTES * begin..IDENTITY_BYTES * end]))
    }

    fn published(&self, begin: usize, end: usize) -> PyResult<Vec<u64>> {
        self.check(begin, end)?;
        let after = &self.layout.published[begin..end];
        Ok(after.iter().map(|&after| self.first_ms + u64::from(after)).collect())
    }

    fn published_offsets<'py>(
        &self,
        py: Python<'py>,
        begin: usize,
        end: usize,
        base_ms: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check(begin, end)?;
        let after = &self.layout.published[begin..end];
        Ok(offsets(py, after.iter().map(|&after| self.first_ms + u64::from(after)), base_ms))
    }

    fn doubtful(&self) -> Vec<usize> {
        (0..self.layout.len()).filter(|&number| self.layout.is_doubtful(number)).collect()
    }

    fn expired(&self, begin: usize, end: usize, now_ms: u64) -> PyResult<Vec<usize>> {
        self.check(begin, end)?;
        let is_over = |&number: &usize| (1..=now_ms).contains(&self.layout.deadlines[number]);
        Ok((begin..end).filter(is_over).collect())
    }

    fn entry<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyTuple>> {
        self.check(number, number + 1)?;
        let entry = self.layout.entry(self.columns.as_bytes(py), number);
        (
            PyBytes::new(py, entry.identity),
            PyBytes::new(py, entry.routing_key),
            PyBytes::new(py, entry.properties),
            PyBytes::new(py, entry.body),
            self.first_ms + u64::from(entry.published_after),
            entry.deadline_ms,
            entry.doubtful,
        )
            .into_pyobject(py)
    }

    fn stamped(
        slf: Bound<'_, Self>,
        begin: usize,
        end: usize,
        stamp: &Stamp,
        now_ms: u64,
    ) -> PyResult<Option<StampedRun>> {
        let py = slf.py();
        let batch = slf.get();
        batch.check(begin, end)?;
        let columns = batch.columns.as_bytes(py);
        let mut properties = Vec::with_capacity((end - begin) * 128);
        let mut ends = Vec::with_capacity(end - begin);
        for number in begin..end {
            let entry = batch.layout.entry(columns, number);
            let left_ms = match entry.deadline_ms {
                0 => None,
                deadline if deadline > now_ms => Some((deadline - now_ms).min(u32::MAX.into())),
                _ => return Ok(None),
            };
            if stamp.stamp.apply(entry.properties, left_ms, &mut properties).is_err() {
                return Ok(None);
            }
            ends.push(properties.len());
        }
        Ok(Some(StampedRun { batch: slf.unbind(), begin, properties, ends }))
    }
}

#[pyclass(frozen, sequence, module = "isthmus_core")]
struct StampedRun {
    batch: Py<OpenedBatch>,
    begin: usize,
    properties: Vec<u8>,
    /// Where each message's properties end.
    ends: Vec<usize>,
}

impl StampedRun {
    fn properties_of(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.properties[begin..self.ends[index]]
    }
}

#[pymethods]
impl StampedRun {
    fn __len__(&self) -> usize {
        self.ends.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyTuple>> {
        if index >= self.ends.len() {
            return Err(PyIndexError::new_err("no such message"));
        }
        let batch = self.batch.get();
        let entry = batch.layout.entry(batch.columns.as_bytes(py), self.begin + index);
        (
            PyBytes::new(py, entry.routing_key),
            PyBytes::new(py, self.properties_of(index)),
            PyBytes::new(py, entry.body),
        )
            .into_pyobject(py)
    }

    fn frames<'py>(
        &self,
        py: Python<'py>,
        exchange: &[u8],
        channel: u16,
        largest: usize,
        mandatory: bool,
    ) -> Option<Bound<'py, PyBytes>> {
        let batch = self.batch.get();
        let columns = batch.columns.as_bytes(py);
        let writer = Publishes { exchange, channel, largest, mandatory };
        let mut out =
            Vec::with_capacity(columns.len() + self.properties.len() + 96 * self.ends.len());
        for index in 0..self.ends.len() {
            let entry = batch.layout.entry(columns, self.begin + index);
            let properties = self.properties_of(index);
            if !writer.can_carry(entry.routing_key, properties.len()) {
                return None;
            }
            writer.put(entry.routing_key, properties, entry.body, &mut out);
        }
        Some(PyBytes::new(py, &out))
    }
}

#[pymodule]
fn isthmus_core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<DeliveryBlock>()?;
    module.add_class::<IntakeRules>()?;
    module.add_class::<OpenBatch>()?;
    module.add_class::<OpenedBatch>()?;
    module.add_class::<Stamp>()?;
    module.add_class::<StampedRun>()?;
    module.add_function(wrap_pyfunction!(scan_deliveries, module)?)?;
    Ok(())
}
