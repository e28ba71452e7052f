//! A batch's messages as columns, as `relay/batches/format.py` draws them: filled message by message
//! while a packer gathers, and read whole by a deliverer.

use std::collections::HashMap;

use crate::identity::{
    content_hashes, text_identity, uuid7, uuid_of, Content, Identity, CONTENT_KEPT, IDENTITY_BYTES,
    RANDOM_BYTES,
};
use crate::properties::{
    self, clean, content_kind, flags_of, table_and_user, text, Malformed, CONTENT_ENCODING,
    CONTENT_TYPE, HEADERS, MESSAGE_ID, USER_ID,
};

pub const MOST_ENTRIES: usize = 256;
/// Bytes of an entry beside its key, properties and body.
pub const ENTRY_BYTES: usize = IDENTITY_BYTES + 1 + 4 + 8 + 4 + 4 + 4;
const TABLES_REMEMBERED: usize = 256;
const TABLE_BYTES: usize = 1024;
const DOUBTFUL: u8 = 1;

/// Source of an exchange's identities.
pub enum IdentityRule {
    Uuid,
    MessageId,
    /// By the header of this name.
    Header(Vec<u8>),
    Content,
    None,
}

/// How one exchange's messages are taken in; see `Intake`.
pub struct Rules {
    pub identity: IdentityRule,
    /// Users of the site's deliverer, if its messages come round.
    pub relay_users: Vec<Vec<u8>>,
    own_tables: HashMap<Vec<u8>, bool>,
}

/// A message as it came.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    pub routing_key: &'a [u8],
    pub properties: &'a [u8],
    pub body: &'a [u8],
}

/// What becomes of a message.
enum Fate<'a> {
    Entry(properties::Cleaned<'a>, Option<Identity>),
    /// Ours coming round: passed over.
    Own,
    /// For the twin.
    Odd,
}

impl Rules {
    pub fn new(identity: IdentityRule, relay_users: Vec<Vec<u8>>) -> Self {
        Rules { identity, relay_users, own_tables: HashMap::new() }
    }

    /// Note whether a relay user's message with this header table is ours coming round.
    pub fn learn(&mut self, table: &[u8], own: bool) {
        if table.len() > TABLE_BYTES {
            return;
        }
        if self.own_tables.len() >= TABLES_REMEMBERED {
            self.own_tables.clear();
        }
        self.own_tables.insert(table.to_vec(), own);
    }

    fn fate_of<'a>(&self, message: &Incoming<'a>) -> Fate<'a> {
        self.read(message).unwrap_or(Fate::Odd)
    }

    fn read<'a>(&self, message: &Incoming<'a>) -> Result<Fate<'a>, Malformed> {
        if message.properties.len() < 2 {
            return Err(Malformed);
        }
        let both = HEADERS | USER_ID;
        if flags_of(message.properties) & both == both && !self.relay_users.is_empty() {
            if let Some((table, user)) = table_and_user(message.properties)? {
                if self.relay_users.iter().any(|each| each == user) {
                    match self.own_tables.get(table) {
                        Some(true) => return Ok(Fate::Own),
                        Some(false) => {}
                        None => return Ok(Fate::Odd),
                    }
                }
            }
        }
        let cleaned = clean(message.properties)?;
        let identity = self.identity_of(message, &cleaned.properties)?;
        Ok(Fate::Entry(cleaned, identity))
    }

    fn identity_of(
        &self,
        message: &Incoming<'_>,
        cleaned: &[u8],
    ) -> Result<Option<Identity>, Malformed> {
        Ok(match &self.identity {
            IdentityRule::Uuid => text(cleaned, MESSAGE_ID)?.and_then(uuid_of),
            IdentityRule::MessageId => text(cleaned, MESSAGE_ID)?.and_then(text_identity),
            IdentityRule::Header(name) => match properties::headers(cleaned)? {
                Some(table) => crate::field_table::value(table, name)?.and_then(|value| {
                    let is_text = matches!(value.first(), Some(b'S' | b'x'));
                    text_identity(if is_text { value.get(5..).unwrap_or(&[]) } else { value })
                }),
                None => None,
            },
            IdentityRule::Content => Some(
                Content {
                    routing_key: message.routing_key,
                    content_type: text(cleaned, CONTENT_TYPE)?.unwrap_or(&[]),
                    content_encoding: text(cleaned, CONTENT_ENCODING)?.unwrap_or(&[]),
                    body: message.body,
                }
                .hash(),
            ),
            IdentityRule::None => None,
        })
    }
}

/// How much a batch may hold.
#[derive(Clone, Copy)]
pub struct Limits {
    pub entries: usize,
    pub bytes: usize,
    /// Bytes of an entry above which a message goes in pieces.
    pub big_above: usize,
}

/// Outcome of offering a message to an open batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer {
    Packed,
    /// Ours coming round: passed over.
    Own,
    /// The batch is to be sealed first.
    Full,
    /// Another way of packing is needed: the twin's.
    Odd,
    /// More random bytes are needed.
    Random,
}

/// Messages of a batch that is being gathered. A body is a span of one of the caller's buffers.
#[derive(Default)]
pub struct OpenColumns {
    pub identities: Vec<u8>,
    flags: Vec<u8>,
    pub published: Vec<u64>,
    deadlines: Vec<u64>,
    key_lengths: Vec<u32>,
    property_lengths: Vec<u32>,
    keys: Vec<u8>,
    properties: Vec<u8>,
    bodies: Vec<(u32, u32, u32)>,
    /// Bytes of the columns.
    pub size: usize,
}

/// An entry whose body is in `buffer`, from and to.
pub struct NewEntry<'a> {
    pub identity: Identity,
    pub routing_key: &'a [u8],
    pub properties: &'a [u8],
    pub body: (u32, u32, u32),
    pub published_ms: u64,
    pub deadline_ms: u64,
    pub doubtful: bool,
}

impl OpenColumns {
    pub fn len(&self) -> usize {
        self.flags.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    pub fn push(&mut self, entry: &NewEntry<'_>) {
        let (_, from, to) = entry.body;
        self.identities.extend_from_slice(&entry.identity);
        self.flags.push(if entry.doubtful { DOUBTFUL } else { 0 });
        self.published.push(entry.published_ms);
        self.deadlines.push(entry.deadline_ms);
        self.key_lengths.push(entry.routing_key.len() as u32);
        self.property_lengths.push(entry.properties.len() as u32);
        self.keys.extend_from_slice(entry.routing_key);
        self.properties.extend_from_slice(entry.properties);
        self.bodies.push(entry.body);
        self.size +=
            ENTRY_BYTES + entry.routing_key.len() + entry.properties.len() + (to - from) as usize;
    }

    /// Pack a message, whose body is in `body.0` from `body.1` to `body.2`, if nothing stands
    /// against that. `random`: bytes for an identity, of which the first RANDOM_BYTES are used if
    /// the second result is true.
    pub fn offer(
        &mut self,
        rules: &Rules,
        message: &Incoming<'_>,
        body: (u32, u32, u32),
        now_ms: u64,
        random: &[u8],
        limits: Limits,
    ) -> (Offer, bool) {
        let (cleaned, identity) = match rules.fate_of(message) {
            Fate::Entry(cleaned, identity) => (cleaned, identity),
            Fate::Own => return (Offer::Own, false),
            Fate::Odd => return (Offer::Odd, false),
        };
        let size =
            ENTRY_BYTES + message.routing_key.len() + cleaned.properties.len() + message.body.len();
        if size > limits.big_above {
            return (Offer::Odd, false);
        }
        if self.size + size > limits.bytes && !self.is_empty() {
            return (Offer::Full, false);
        }
        let is_made = identity.is_none();
        let identity = match identity {
            Some(identity) => identity,
            None => match random.get(..RANDOM_BYTES) {
                Some(chance) => uuid7(now_ms, chance),
                None => return (Offer::Random, false),
            },
        };
        self.push(&NewEntry {
            identity,
            routing_key: message.routing_key,
            properties: &cleaned.properties,
            body,
            published_ms: now_ms,
            deadline_ms: cleaned.ttl_ms.map_or(0, |ttl| (now_ms + ttl).max(1)),
            doubtful: false,
        });
        (Offer::Packed, is_made)
    }

    /// The columns, in one piece. None if two messages were published too far apart.
    pub fn bytes(&self, buffers: &[&[u8]]) -> Option<Vec<u8>> {
        let first = self.published.iter().min().copied().unwrap_or(0);
        let mut out = Vec::with_capacity(self.size);
        out.extend_from_slice(&self.identities);
        out.extend_from_slice(&self.flags);
        for published in &self.published {
            out.extend_from_slice(&u32::try_from(published - first).ok()?.to_be_bytes());
        }
        for deadline in &self.deadlines {
            out.extend_from_slice(&deadline.to_be_bytes());
        }
        for lengths in [&self.key_lengths, &self.property_lengths] {
            for length in lengths {
                out.extend_from_slice(&length.to_be_bytes());
            }
        }
        for (_, from, to) in &self.bodies {
            out.extend_from_slice(&(to - from).to_be_bytes());
        }
        out.extend_from_slice(&self.keys);
        out.extend_from_slice(&self.properties);
        for &(buffer, from, to) in &self.bodies {
            out.extend_from_slice(buffers.get(buffer as usize)?.get(from as usize..to as usize)?);
        }
        Some(out)
    }

    /// Forget all that is not needed once the batch is sealed.
    pub fn drop_messages(&mut self) {
        self.keys = Vec::new();
        self.properties = Vec::new();
        self.bodies = Vec::new();
    }
}

/// An entry's fields.
pub struct EntryFields<'a> {
    pub identity: &'a [u8],
    pub routing_key: &'a [u8],
    pub properties: &'a [u8],
    pub body: &'a [u8],
    /// Milliseconds after the batch's first.
    pub published_after: u32,
    pub deadline_ms: u64,
    pub doubtful: bool,
}

/// Places of all entries in a batch's columns.
pub struct Layout {
    pub published: Vec<u32>,
    pub deadlines: Vec<u64>,
    flags: Vec<u8>,
    keys: Vec<(usize, usize)>,
    properties: Vec<(usize, usize)>,
    bodies: Vec<(usize, usize)>,
}

fn words(columns: &[u8], at: usize, count: usize) -> Vec<u32> {
    columns[at..at + 4 * count]
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

/// Spans of what lies one after the other from `at` on, and where it ends.
fn spans(lengths: &[u32], mut at: usize) -> (Vec<(usize, usize)>, usize) {
    let mut found = Vec::with_capacity(lengths.len());
    for &length in lengths {
        found.push((at, at + length as usize));
        at += length as usize;
    }
    (found, at)
}

impl Layout {
    /// Read `n` entries' places. The error is the twin's, word for word.
    pub fn read(columns: &[u8], n: usize) -> Result<Self, String> {
        if n > MOST_ENTRIES {
            return Err(format!("{} entries, a batch holds at most {}", n, MOST_ENTRIES));
        }
        if columns.len() < ENTRY_BYTES * n {
            return Err(format!("{} bytes cannot hold {} entries", columns.len(), n));
        }
        let at = IDENTITY_BYTES * n;
        let flags = columns[at..at + n].to_vec();
        let published = words(columns, at + n, n);
        let deadlines = columns[at + 5 * n..at + 13 * n]
            .chunks_exact(8)
            .map(|word| word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
            .collect();
        let lengths = at + 13 * n;
        let (keys, end) = spans(&words(columns, lengths, n), ENTRY_BYTES * n);
        let (properties, end) = spans(&words(columns, lengths + 4 * n, n), end);
        let (bodies, end) = spans(&words(columns, lengths + 8 * n, n), end);
        if end != columns.len() {
            return Err("lengths of the entries do not add up to the block".to_owned());
        }
        Ok(Layout { published, deadlines, flags, keys, properties, bodies })
    }

    pub fn len(&self) -> usize {
        self.flags.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    pub fn is_doubtful(&self, number: usize) -> bool {
        self.flags[number] & DOUBTFUL != 0
    }

    pub fn entry<'a>(&self, columns: &'a [u8], number: usize) -> EntryFields<'a> {
        let cut = |(from, to): (usize, usize)| &columns[from..to];
        EntryFields {
            identity: &columns[IDENTITY_BYTES * number..IDENTITY_BYTES * (number + 1)],
            routing_key: cut(self.keys[number]),
            properties: cut(self.properties[number]),
            body: cut(self.bodies[number]),
            published_after: self.published[number],
            deadline_ms: self.deadlines[number],
            doubtful: self.is_doubtful(number),
        }
    }

    /// The first bytes of each message's content hash, one after the other.
    pub fn content_hashes(&self, columns: &[u8]) -> Vec<u8> {
        let contents: Vec<Content<'_>> = (0..self.len())
            .map(|number| {
                let entry = self.entry(columns, number);
                let (content_type, content_encoding) = content_kind(entry.properties);
                Content {
                    routing_key: entry.routing_key,
                    content_type,
                    content_encoding,
                    body: entry.body,
                }
            })
            .collect();
        let hashes = content_hashes(&contents);
        debug_assert_eq!(hashes.len(), CONTENT_KEPT * self.len());
        hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { entries: 256, bytes: 1 << 18, big_above: 1 << 18 };

    fn offered(columns: &mut OpenColumns, rules: &Rules, properties: &[u8], body: &[u8]) -> Offer {
        let message = Incoming { routing_key: b"key", properties, body };
        columns.offer(rules, &message, (0, 0, body.len() as u32), 1_000, &[1; 10], LIMITS).0
    }

    #[test]
    fn what_is_packed_is_what_is_read() {
        let rules = Rules::new(IdentityRule::None, Vec::new());
        let mut columns = OpenColumns::default();
        assert_eq!(offered(&mut columns, &rules, b"\x10\x00\x02", b"body"), Offer::Packed);
        assert_eq!(offered(&mut columns, &rules, b"\x11\x00\x02\x0210", b"bo"), Offer::Packed);
        let bytes = columns.bytes(&[b"body"]).unwrap();
        assert_eq!(bytes.len(), columns.size);
        let layout = Layout::read(&bytes, 2).unwrap();
        let (first, second) = (layout.entry(&bytes, 0), layout.entry(&bytes, 1));
        assert_eq!(
            (first.routing_key, first.body, first.deadline_ms),
            (&b"key"[..], &b"body"[..], 0)
        );
        assert_eq!(
            (second.body, second.deadline_ms, second.published_after),
            (&b"bo"[..], 1_010, 0)
        );
    }

    #[test]
    fn ours_coming_round_is_the_twins_until_its_table_is_known() {
        let mut rules = Rules::new(IdentityRule::None, vec![b"relay".to_vec()]);
        let properties = b"\x20\x10\x00\x00\x00\x05\x01at\x01\x00\x05relay";
        let properties = &[&properties[..2], b"\x00\x00\x00\x04\x01at\x01", b"\x05relay"].concat();
        let mut columns = OpenColumns::default();
        assert_eq!(offered(&mut columns, &rules, properties, b""), Offer::Odd);
        rules.learn(b"\x01at\x01", true);
        assert_eq!(offered(&mut columns, &rules, properties, b""), Offer::Own);
        rules.learn(b"\x01at\x01", false);
        assert_eq!(offered(&mut columns, &rules, properties, b""), Offer::Packed);
    }

    #[test]
    fn a_full_batch_takes_no_more_and_a_big_message_is_the_twins() {
        let rules = Rules::new(IdentityRule::None, Vec::new());
        let mut columns = OpenColumns::default();
        let body = vec![0; (1 << 18) - 100];
        assert_eq!(offered(&mut columns, &rules, b"\x00\x00", &body), Offer::Packed);
        assert_eq!(offered(&mut columns, &rules, b"\x00\x00", &body), Offer::Full);
        assert_eq!(offered(&mut columns, &rules, b"\x00\x00", &vec![0; 1 << 18]), Offer::Odd);
    }

    #[test]
    fn columns_that_do_not_add_up_are_refused() {
        let rules = Rules::new(IdentityRule::None, Vec::new());
        let mut columns = OpenColumns::default();
        offered(&mut columns, &rules, b"\x10\x00\x02", b"body");
        let bytes = columns.bytes(&[b"body"]).unwrap();
        for end in 0..bytes.len() {
            assert!(Layout::read(&bytes[..end], 1).is_err());
        }
        assert!(Layout::read(&bytes, 2).is_err());
        assert!(Layout::read(&bytes, 257).is_err());
    }
}
