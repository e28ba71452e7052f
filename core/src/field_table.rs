//! Walking of AMQP field tables, as `relay/bulk_amqp/field_table.py` does.
//!
//! A table, without the four length bytes in front, is entry after entry:
//! `| length, 1 | name | tag, 1 | value |`.

/// An entry that cannot be read: the Python twin decides what becomes of the message.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// An entry of a table, as positions in the table's bytes.
#[derive(Clone, Copy)]
pub struct TableEntry {
    pub start: usize,
    pub tag_at: usize,
    pub end: usize,
}

impl TableEntry {
    pub fn name<'a>(&self, table: &'a [u8]) -> &'a [u8] {
        table.get(self.start + 1..self.tag_at).unwrap_or(&[])
    }

    /// Tag and value.
    pub fn value<'a>(&self, table: &'a [u8]) -> &'a [u8] {
        table.get(self.tag_at..self.end).unwrap_or(&[])
    }
}

/// Outermost entries in order; nested tables and arrays are stepped over.
pub struct Entries<'a> {
    table: &'a [u8],
    at: usize,
}

pub fn entries(table: &[u8]) -> Entries<'_> {
    Entries { table, at: 0 }
}

impl Iterator for Entries<'_> {
    type Item = Result<TableEntry, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.table.len() {
            return None;
        }
        let found = self.read();
        // An unreadable entry is the last: where the next begins is unknown.
        self.at = found.as_ref().map_or(self.table.len(), |entry| entry.end);
        Some(found)
    }
}

impl Entries<'_> {
    fn read(&self) -> Result<TableEntry, Malformed> {
        let start = self.at;
        let tag_at = start + 1 + *self.table.get(start).ok_or(Malformed)? as usize;
        let end = after_value(self.table, tag_at)?;
        if end > self.table.len() {
            return Err(Malformed);
        }
        Ok(TableEntry { start, tag_at, end })
    }
}

/// Position after the value whose tag is at `at`; may lie past the end of the block.
fn after_value(block: &[u8], at: usize) -> Result<usize, Malformed> {
    let fixed = match block.get(at).ok_or(Malformed)? {
        b'V' => 0,
        b't' | b'b' | b'B' => 1,
        b's' | b'u' => 2,
        b'I' | b'i' | b'f' => 4,
        b'D' => 5,
        b'l' | b'L' | b'd' | b'T' => 8,
        b'S' | b'x' | b'F' | b'A' => {
            let size = block.get(at + 1..at + 5).ok_or(Malformed)?;
            let size = u32::from_be_bytes([size[0], size[1], size[2], size[3]]);
            return Ok(at + 5 + size as usize);
        }
        _ => return Err(Malformed),
    };
    Ok(at + 1 + fixed)
}

/// Tag and value of the first entry of this name.
pub fn value<'a>(table: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>, Malformed> {
    for entry in entries(table) {
        let entry = entry?;
        if entry.name(table) == name {
            return Ok(Some(entry.value(table)));
        }
    }
    Ok(None)
}

/// The table without entries of unwanted names, or None if there is none.
pub fn without(
    table: &[u8],
    unwanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, Malformed> {
    let mut kept: Vec<u8> = Vec::new();
    let mut kept_to = 0;
    for entry in entries(table) {
        let entry = entry?;
        if unwanted(entry.name(table)) {
            kept.extend_from_slice(&table[kept_to..entry.start]);
            kept_to = entry.end;
        }
    }
    if kept_to == 0 {
        return Ok(None);
    }
    kept.extend_from_slice(&table[kept_to..]);
    Ok(Some(kept))
}

/// Append an entry with a long string.
pub fn put_text(out: &mut Vec<u8>, name: &[u8], text: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
    out.push(b'S');
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<u8> {
        let mut made = Vec::new();
        put_text(&mut made, b"first", b"one");
        made.extend_from_slice(b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x07");
        put_text(&mut made, b"last", b"");
        made
    }

    #[test]
    fn entries_are_found_by_name() {
        assert_eq!(value(&table(), b"first"), Ok(Some(&b"S\x00\x00\x00\x03one"[..])));
        assert_eq!(value(&table(), b"count").map(|found| found.map(<[u8]>::len)), Ok(Some(9)));
        assert_eq!(value(&table(), b"none"), Ok(None));
    }

    #[test]
    fn unwanted_entries_go_and_others_stay_as_they_are() {
        let mut rest = Vec::new();
        put_text(&mut rest, b"first", b"one");
        put_text(&mut rest, b"last", b"");
        assert_eq!(without(&table(), |name| name == b"count"), Ok(Some(rest)));
        assert_eq!(without(&table(), |name| name == b"none"), Ok(None));
        assert_eq!(without(&table(), |_| true), Ok(Some(Vec::new())));
    }

    #[test]
    fn every_cut_is_malformed_or_ends_between_entries() {
        let whole = table();
        let ends: Vec<usize> = entries(&whole).map(|entry| entry.unwrap().end).collect();
        for end in 1..whole.len() {
            let read = entries(&whole[..end]).all(|entry| entry.is_ok());
            assert_eq!(read, ends.contains(&end), "cut at {}", end);
        }
    }
}
