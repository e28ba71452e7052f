//! AMQP frames: deliveries as spans of a read, and the frames that publish a message.
//!
//! Frames are drawn in `relay/bulk_amqp/frame_reader.py` and `frame_writer.py`.

/// Bytes of a read, from and up to.
pub type Span = (u32, u32);

pub fn cut(data: &[u8], span: Span) -> &[u8] {
    data.get(span.0 as usize..span.1 as usize).unwrap_or(&[])
}

/// A delivery whose frames all lie in one read.
#[derive(Clone, Copy)]
pub struct Delivery {
    pub tag: u64,
    pub redelivered: bool,
    pub exchange: Span,
    pub routing_key: Span,
    pub properties: Span,
    pub body: Span,
}

/// A delivery, and where in the read it was found.
pub struct Found<'a> {
    pub delivery: Delivery,
    /// Type and channel of its method frame.
    pub start: &'a [u8],
    /// Method and consumer tag.
    pub consumer: &'a [u8],
    pub end: usize,
}

pub enum Step<'a> {
    Found(Found<'a>),
    /// Another frame, or a delivery that is cut by the read's end, or big: for the twin.
    Stop,
    /// Exchange and routing key do not fill their frame: the twin words the error.
    BadNames,
}

/// basic.deliver with a consumer tag of six bytes.
const DELIVER_TO: &[u8] = &[0, 0x3c, 0, 0x3c, 6];
const START_BYTES: usize = 27;
const HEADER_BYTES: usize = 20;
const CLASS: u32 = 0x003C_0000;
const FRAME_END: u8 = 0xce;

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(data.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Read the delivery at `position`. `largest` is the largest payload of a frame.
pub fn next_delivery(data: &[u8], position: usize, largest: usize) -> Step<'_> {
    read_delivery(data, position, largest).unwrap_or(Step::Stop)
}

fn read_delivery(data: &[u8], position: usize, largest: usize) -> Option<Step<'_>> {
    let head = data.get(position..position.checked_add(START_BYTES)?)?;
    let (start, consumer) = (&head[..3], &head[7..18]);
    if start[0] != 1 || &consumer[..5] != DELIVER_TO {
        return Some(Step::Stop);
    }
    let size = u32_at(head, 3)? as usize;
    let (tag, redelivered) = (u64_at(head, 18)?, head[26] != 0);
    let names_at = position + START_BYTES;
    let mut at = position.checked_add(7)?.checked_add(size)?;
    let names_end = at.max(names_at);
    let header = data.get(at..at.checked_add(HEADER_BYTES)?)?;
    let size = u32_at(header, 4)? as usize;
    if header[..4] != [FRAME_END, 2, start[1], start[2]]
        || u32_at(header, 8)? != CLASS
        || size > largest
    {
        return Some(Step::Stop);
    }
    let body_size = u64_at(header, 12)?;
    let properties = (at + HEADER_BYTES, (at + 8 + size).max(at + HEADER_BYTES));
    at += 8 + size;
    let mut body = (at, at);
    if body_size != 0 {
        let head = data.get(at..at.checked_add(8)?)?;
        let size = u32_at(head, 4)? as usize;
        if head[..4] != [FRAME_END, 3, start[1], start[2]]
            || size as u64 != body_size
            || size > largest
        {
            return Some(Step::Stop);
        }
        body = (at + 8, at + 8 + size);
        at += 8 + size;
    }
    if *data.get(at)? != FRAME_END {
        return Some(Step::Stop);
    }
    let names = data.get(names_at..names_end)?;
    let length = names.first().copied().unwrap_or(0) as usize;
    if names.len() < length + 2 || names[1 + length] as usize != names.len() - length - 2 {
        return Some(Step::BadNames);
    }
    let span = |from: usize, to: usize| (from as u32, to as u32);
    let delivery = Delivery {
        tag,
        redelivered,
        exchange: span(names_at + 1, names_at + 1 + length),
        routing_key: span(names_at + 2 + length, names_end),
        properties: span(properties.0, properties.1),
        body: span(body.0, body.1),
    };
    Some(Step::Found(Found { delivery, start, consumer, end: at + 1 }))
}

/// The frames that publish messages to one exchange over one channel.
pub struct Publishes<'a> {
    pub exchange: &'a [u8],
    pub channel: u16,
    /// Largest payload of a frame.
    pub largest: usize,
    pub mandatory: bool,
}

impl Publishes<'_> {
    /// True if AMQP can carry a message with this key and so many bytes of properties.
    pub fn can_carry(&self, routing_key: &[u8], properties: usize) -> bool {
        self.exchange.len() <= 255
            && routing_key.len() <= 255
            && self.largest > 0
            && 12 + properties <= self.largest
    }

    /// Append a message's frames.
    pub fn put(&self, routing_key: &[u8], properties: &[u8], body: &[u8], out: &mut Vec<u8>) {
        self.start(1, 9 + self.exchange.len() + routing_key.len(), out);
        out.extend_from_slice(b"\x00\x3c\x00\x28\x00\x00");
        for text in [self.exchange, routing_key] {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
        out.extend_from_slice(&[u8::from(self.mandatory), FRAME_END]);
        self.start(2, 12 + properties.len(), out);
        out.extend_from_slice(&CLASS.to_be_bytes());
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        out.extend_from_slice(properties);
        out.push(FRAME_END);
        for piece in body.chunks(self.largest) {
            self.start(3, piece.len(), out);
            out.extend_from_slice(piece);
            out.push(FRAME_END);
        }
    }

    fn start(&self, kind: u8, size: usize, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&self.channel.to_be_bytes());
        out.extend_from_slice(&(size as u32).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let writer = Publishes { exchange: b"", channel: 3, largest: 1 << 17, mandatory: false };
        writer.start(1, 5 + 6 + 8 + 1 + 2 + 5, &mut out);
        out.extend_from_slice(b"\x00\x3c\x00\x3c\x06ctag-1");
        out.extend_from_slice(&7u64.to_be_bytes());
        out.extend_from_slice(b"\x00\x02ex\x03key");
        out.truncate(7 + 5 + 6 + 8 + 1 + 3 + 4);
        let size = (out.len() - 7) as u32;
        out[3..7].copy_from_slice(&size.to_be_bytes());
        out.push(FRAME_END);
        writer.start(2, 12 + 3, &mut out);
        out.extend_from_slice(&CLASS.to_be_bytes());
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        out.extend_from_slice(b"\x10\x00\x02\xce");
        for piece in body.chunks(1 << 17) {
            writer.start(3, piece.len(), &mut out);
            out.extend_from_slice(piece);
            out.push(FRAME_END);
        }
        out
    }

    #[test]
    fn a_whole_delivery_is_spans_of_its_bytes() {
        for body in [&b"hello"[..], b""] {
            let data = delivered(body);
            let found = match next_delivery(&data, 0, 1 << 17) {
                Step::Found(found) => found,
                _ => panic!("not found"),
            };
            let delivery = found.delivery;
            assert_eq!((delivery.tag, found.end), (7, data.len()));
            assert_eq!(cut(&data, delivery.exchange), b"ex");
            assert_eq!(cut(&data, delivery.routing_key), b"key");
            assert_eq!(cut(&data, delivery.properties), b"\x10\x00\x02");
            assert_eq!(cut(&data, delivery.body), body);
        }
    }

    #[test]
    fn a_delivery_that_is_cut_anywhere_is_left_alone() {
        let data = delivered(b"hello");
        for end in 0..data.len() {
            assert!(
                matches!(next_delivery(&data[..end], 0, 1 << 17), Step::Stop),
                "cut at {}",
                end
            );
        }
    }

    #[test]
    fn no_byte_that_is_changed_makes_a_panic() {
        let data = delivered(b"hello");
        for at in 0..data.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = data.clone();
                changed[at] = value;
                next_delivery(&changed, 0, 1 << 17);
            }
        }
    }

    #[test]
    fn a_large_body_goes_in_pieces() {
        let mut out = Vec::new();
        Publishes { exchange: b"ex", channel: 1, largest: 4, mandatory: true }.put(
            b"k",
            b"\0\0",
            b"123456789",
            &mut out,
        );
        let ends = b"\x03\x00\x01\x00\x00\x00\x041234\xce\x03\x00\x01\x00\x00\x00\x045678\xce\x03\x00\x01\x00\x00\x00\x019\xce";
        assert!(out.ends_with(ends));
    }
}
