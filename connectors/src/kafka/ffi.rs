//! The one file with `unsafe`: what librdkafka has and its safe wrapper lacks, behind a small safe interface.
//!
//! That is: consuming in batches (half the processor time of polling one by one), queues of single partitions,
//! positions with leader epochs, and two admin requests (topics with their ids, offsets of many partitions at once).
//! Nothing here decides anything.
//!
//! Rules that keep it sound: every queue, message and call holds the client that it came from, because librdkafka must
//! not be destroyed before them; a message's memory is reached only through a borrow of the [`Messages`] that owns it;
//! error codes are read as numbers, since a newer broker may send one that the generated enum does not know.
#![allow(unsafe_code, reason = "the door to the C library; every block says why it holds")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as c;
use tidemill_core::{Error, Result, code};

use super::client::Client;

/// The library's functions that return an error code, declared as returning the number that it is.
mod by_number {
    use std::ffi::c_int;

    use rdkafka::bindings as c;

    #[allow(clashing_extern_declarations, reason = "an enum that does not know a code must not be made of it")]
    unsafe extern "C" {
        pub(super) fn rd_kafka_error_code(error: *const c::rd_kafka_error_t) -> c_int;
        pub(super) fn rd_kafka_event_error(event: *mut c::rd_kafka_event_t) -> c_int;
    }
}

/// An error code of librdkafka or of a broker, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub i32);

impl Code {
    pub(super) const NONE: Code = Code(0);
    pub(super) const END_OF_PARTITION: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF as i32);
    pub(super) const OFFSET_RESET: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET as i32);
    pub(super) const UNKNOWN_TOPIC: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART as i32);
    pub(super) const UNKNOWN_TOPIC_LOCAL: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC as i32);
    pub(super) const INVALID_TOPIC: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION as i32);
    pub(super) const TOPIC_DENIED: Code =
        Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED as i32);
    pub(super) const CLUSTER_DENIED: Code =
        Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED as i32);
    pub(super) const UNSUPPORTED_CODEC: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED as i32);
    pub(super) const BAD_MESSAGE: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__BAD_MSG as i32);
    pub(super) const BAD_COMPRESSION: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__BAD_COMPRESSION as i32);
    pub(super) const NO_ENTRY: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__NOENT as i32);
    pub(super) const STATE: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__STATE as i32);
    pub(super) const TOO_LARGE: Code = Code(c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE as i32);

    /// The library's description of the code.
    pub(super) fn text(self) -> String {
        let (mut table, mut count) = (ptr::null(), 0);
        // SAFETY: both are valid places for the results; the table is static memory of the library.
        unsafe { c::rd_kafka_get_err_descs(&mut table, &mut count) };
        for at in 0..count {
            // SAFETY: `at` is within the table. The code is read as a number, not as an enum.
            let (number, text) = unsafe {
                let entry = table.add(at);
                (ptr::addr_of!((*entry).code).cast::<i32>().read(), (*entry).desc)
            };
            if number == self.0 && !text.is_null() {
                return text_of(text);
            }
        }
        format!("error {} of the broker", self.0)
    }
}

/// Copies a C string; empty if there is none.
fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's strings end with a zero byte and live at least as long as this call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(code::INVALID_OPTION, format!("{text:?} has a zero byte in it")))
}

fn millis(duration: Duration) -> c_int {
    c_int::try_from(duration.as_millis()).unwrap_or(c_int::MAX)
}

/// Whether the library has a property of this name.
pub(super) fn knows_property(name: &str) -> bool {
    let Ok(name) = c_text(name) else { return false };
    // SAFETY: the configuration is made here and destroyed here; without a value the property is set to its default,
    // and without a place for a message none is written.
    unsafe {
        let config = c::rd_kafka_conf_new();
        let result = c::rd_kafka_conf_set(config, name.as_ptr(), ptr::null(), ptr::null_mut(), 0);
        c::rd_kafka_conf_destroy(config);
        result != c::rd_kafka_conf_res_t::RD_KAFKA_CONF_UNKNOWN
    }
}

/// The names of the properties that have a default, to suggest one for a misspelt one.
pub(super) fn property_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the configuration is made here, dumped, and destroyed; the dump is an array of `count` strings, names and
    // values in turn, freed with its own function.
    unsafe {
        let config = c::rd_kafka_conf_new();
        let mut count = 0;
        let dump = c::rd_kafka_conf_dump(config, &mut count);
        for at in (0..count).step_by(2) {
            names.push(text_of(*dump.add(at)));
        }
        c::rd_kafka_conf_dump_free(dump, count);
        c::rd_kafka_conf_destroy(config);
    }
    names
}

/// A queue of the library, with the client that it belongs to.
#[derive(Debug)]
pub(super) struct Queue {
    queue: NonNull<c::rd_kafka_queue_t>,
    client: Arc<Client>,
}

// SAFETY: the library's queues may be used from any thread, also at once.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the queue was obtained once and is given back once; its client is still alive.
        unsafe { c::rd_kafka_queue_destroy(self.queue.as_ptr()) }
    }
}

impl Queue {
    fn new(client: &Arc<Client>) -> Self {
        // SAFETY: the client is alive.
        let queue = unsafe { c::rd_kafka_queue_new(client.raw()) };
        Queue { queue: NonNull::new(queue).expect("a new queue is never null"), client: Arc::clone(client) }
    }

    /// The queue of one partition. It is taken off the client's common queue, before and after `assign` alike.
    pub(super) fn of_partition(client: &Arc<Client>, topic: &str, partition: i32) -> Result<Self> {
        let name = c_text(topic)?;
        // SAFETY: the client is alive and the name ends with a zero byte.
        let queue = unsafe { c::rd_kafka_queue_get_partition(client.raw(), name.as_ptr(), partition) };
        let queue = NonNull::new(queue)
            .ok_or_else(|| Error::new(code::BUG, format!("no queue for partition {partition} of \"{topic}\"")))?;
        let queue = Queue { queue, client: Arc::clone(client) };
        // SAFETY: the queue is alive; no destination means that its messages stay in it. The library remembers that
        // this was asked for, so a later `assign` does not undo it.
        unsafe { c::rd_kafka_queue_forward(queue.queue.as_ptr(), ptr::null_mut()) };
        Ok(queue)
    }

    /// Appends what is waiting, at most `most` messages. Waits up to `wait` for all of them: ask for one to wait for
    /// any, and for many with no wait to take what is there.
    pub(super) fn consume(&self, into: &mut Messages, most: usize, wait: Duration) -> usize {
        let list = &mut into.list;
        list.reserve(most);
        // SAFETY: the list has room for `most` pointers behind its end; the library fills in as many as it returns,
        // each a message that is now ours to destroy.
        unsafe {
            let free = list.as_mut_ptr().add(list.len());
            let taken = c::rd_kafka_consume_batch_queue(self.queue.as_ptr(), millis(wait), free, most);
            let taken = usize::try_from(taken).unwrap_or(0);
            list.set_len(list.len() + taken);
            taken
        }
    }
}

/// Messages that were taken from a queue, in their order. Those that were released are freed at once.
#[derive(Debug)]
pub(super) struct Messages {
    list: Vec<*mut c::rd_kafka_message_t>,
    /// Those before it have been released.
    at: usize,
    /// The library waits for its messages before it ends.
    _client: Arc<Client>,
}

// SAFETY: a message may be read and destroyed by any thread; only the owner of the list reaches it.
unsafe impl Send for Messages {}

impl Drop for Messages {
    fn drop(&mut self) {
        self.release(self.len());
    }
}

impl Messages {
    pub(super) fn new(client: &Arc<Client>) -> Self {
        Messages { list: Vec::new(), at: 0, _client: Arc::clone(client) }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len() - self.at
    }

    /// The one at this place.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Message<'_> {
        // SAFETY: the pointer is not null and the message lives until it is released, which needs `&mut self`.
        Message(unsafe { &*self.list[self.at + at] })
    }

    /// Frees the first `count`.
    pub(super) fn release(&mut self, count: usize) {
        for message in &self.list[self.at..self.at + count] {
            // SAFETY: each message is destroyed once: `at` moves past it.
            unsafe { c::rd_kafka_message_destroy(*message) }
        }
        self.at += count;
        if self.at == self.list.len() {
            self.list.clear();
            self.at = 0;
        }
    }
}

/// One message, or one event of its partition (see [`Message::code`]).
#[derive(Clone, Copy)]
pub(super) struct Message<'a>(&'a c::rd_kafka_message_t);

impl<'a> Message<'a> {
    /// [`Code::NONE`] for a row.
    #[inline]
    pub(super) fn code(self) -> Code {
        // SAFETY: the field is read as the number that it is in C.
        Code(unsafe { ptr::addr_of!(self.0.err).cast::<i32>().read() })
    }

    /// The partition.
    #[cfg(feature = "testing")]
    pub(super) fn partition(self) -> i32 {
        self.0.partition
    }

    /// A row's offset; for an event, the position at which it happened.
    #[inline]
    pub(super) fn offset(self) -> i64 {
        self.0.offset
    }

    /// The key; none if it is null.
    #[inline]
    pub(super) fn key(self) -> Option<&'a [u8]> {
        bytes(self.0.key, self.0.key_len)
    }

    /// The value; none if it is null. For an event, the library's text.
    #[inline]
    pub(super) fn value(self) -> Option<&'a [u8]> {
        bytes(self.0.payload, self.0.len)
    }

    /// Milliseconds since 1970 (-1 if the message has no timestamp), and Spark's number for what they mean: -1 nothing,
    /// 0 creation, 1 append to the log.
    #[inline]
    pub(super) fn timestamp(self) -> (i64, i32) {
        let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive and `kind` is a valid place.
        let time = unsafe { c::rd_kafka_message_timestamp(self.0, &mut kind) };
        (time, kind as i32 - 1)
    }

    /// Calls `each` for every header, in order. A header's value may be null. The library's code if it cannot read them.
    pub(super) fn headers(self, mut each: impl FnMut(&str, Option<&[u8]>)) -> Result<(), Code> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive. On success the headers belong to it and live as long.
        match Code(unsafe { c::rd_kafka_message_headers(self.0, &mut headers) } as i32) {
            Code::NONE => {}
            Code::NO_ENTRY => return Ok(()),
            code => return Err(code),
        }
        for at in 0.. {
            let (mut name, mut value, mut len) = (ptr::null(), ptr::null(), 0);
            // SAFETY: all three are valid places; an index beyond the last is answered with an error.
            if unsafe { c::rd_kafka_header_get_all(headers, at, &mut name, &mut value, &mut len) } as i32 != 0 {
                break;
            }
            // SAFETY: on success `name` ends with a zero byte and belongs to the message.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            each(&name, bytes(value.cast_mut(), len));
        }
        Ok(())
    }
}

#[inline]
fn bytes<'a>(start: *mut c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: callers pass a message's pointer with its length, and bound the result by the message's life.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) })
}

/// A list of partitions with positions.
struct PartitionList(NonNull<c::rd_kafka_topic_partition_list_t>);

impl Drop for PartitionList {
    fn drop(&mut self) {
        // SAFETY: made once by `new`, destroyed once.
        unsafe { c::rd_kafka_topic_partition_list_destroy(self.0.as_ptr()) }
    }
}

impl PartitionList {
    fn new<'a>(partitions: impl IntoIterator<Item = (&'a str, i32, i64, Option<i32>)>) -> Result<Self> {
        // SAFETY: a size of zero is allowed; the list grows.
        let list = NonNull::new(unsafe { c::rd_kafka_topic_partition_list_new(0) }).expect("a list is never null");
        let list = PartitionList(list);
        for (topic, partition, offset, epoch) in partitions {
            let topic = c_text(topic)?;
            // SAFETY: the list is alive; the name is copied; the new element belongs to the list.
            unsafe {
                let element = c::rd_kafka_topic_partition_list_add(list.0.as_ptr(), topic.as_ptr(), partition);
                (*element).offset = offset;
                c::rd_kafka_topic_partition_set_leader_epoch(element, epoch.unwrap_or(-1));
            }
        }
        Ok(list)
    }

    /// Offset and error of the first element.
    fn first(&self) -> (i64, Code) {
        // SAFETY: callers put one element in; its error is read as a number.
        unsafe {
            let element = (*self.0.as_ptr()).elems;
            ((*element).offset, Code(ptr::addr_of!((*element).err).cast::<i32>().read()))
        }
    }
}

/// Takes an error object of the library apart and frees it.
fn check(error: *mut c::rd_kafka_error_t) -> Result<(), (Code, String)> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is alive until it is destroyed, once, here.
    unsafe {
        let code = Code(by_number::rd_kafka_error_code(error));
        let text = text_of(c::rd_kafka_error_string(error));
        c::rd_kafka_error_destroy(error);
        Err((code, text))
    }
}

/// Adds a partition to what the client fetches, from `offset` on.
pub(super) fn assign(client: &Client, topic: &str, partition: i32, offset: i64) -> Result<()> {
    let list = PartitionList::new([(topic, partition, offset, None)])?;
    // SAFETY: client and list are alive; the list is only read.
    check(unsafe { c::rd_kafka_incremental_assign(client.raw(), list.0.as_ptr()) })
        .map_err(|(_, text)| Error::new(code::SOURCE_UNAVAILABLE, format!("partition not assigned: {text}")))
}

/// Takes a partition away from what the client fetches.
pub(super) fn unassign(client: &Client, topic: &str, partition: i32) {
    if let Ok(list) = PartitionList::new([(topic, partition, 0, None)]) {
        // SAFETY: client and list are alive; the list is only read. A partition that is not assigned is no harm.
        let _ = check(unsafe { c::rd_kafka_incremental_unassign(client.raw(), list.0.as_ptr()) });
    }
}

/// Moves an assigned partition to `offset`, dropping what was fetched ahead. With an epoch, the broker is asked whether
/// its log is still the one in which this position was known.
pub(super) fn seek(
    client: &Client,
    topic: &str,
    partition: i32,
    offset: i64,
    epoch: Option<i32>,
    wait: Duration,
) -> Result<(), (Code, String)> {
    let list = PartitionList::new([(topic, partition, offset, epoch)]);
    let list = list.map_err(|error| (Code::UNKNOWN_TOPIC_LOCAL, error.what().to_owned()))?;
    // SAFETY: client and list are alive; the library writes each element's outcome into it.
    check(unsafe { c::rd_kafka_seek_partitions(client.raw(), list.0.as_ptr(), millis(wait)) })?;
    match list.first() {
        (_, Code::NONE) => Ok(()),
        (_, code) => Err((code, code.text())),
    }
}

/// The offset after the last message, marker included, that was taken from the partition's queue; none before the first.
pub(super) fn position(client: &Client, topic: &str, partition: i32) -> Option<i64> {
    let list = PartitionList::new([(topic, partition, 0, None)]).ok()?;
    // SAFETY: client and list are alive; the library writes positions into it.
    unsafe { c::rd_kafka_position(client.raw(), list.0.as_ptr()) };
    match list.first() {
        (offset, Code::NONE) if offset >= 0 => Some(offset),
        _ => None,
    }
}

/// An admin request that was sent. Dropping it forgets the answer.
#[derive(Debug)]
pub(super) struct Call {
    answers: Queue,
}

/// The answer to an admin request.
#[derive(Debug)]
pub(super) struct Answer {
    event: NonNull<c::rd_kafka_event_t>,
    _client: Arc<Client>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: taken from its queue once, destroyed once.
        unsafe { c::rd_kafka_event_destroy(self.event.as_ptr()) }
    }
}

/// What a broker says about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicInfo {
    pub(super) name: String,
    /// The topic's id in the library's base64; none if the broker has no topic ids.
    pub(super) id: Option<String>,
    pub(super) partitions: Vec<i32>,
    pub(super) error: Code,
}

/// What a broker says about the offset that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OffsetInfo {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) epoch: Option<i32>,
    pub(super) error: Code,
}

/// Which offset of a partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetSpec {
    /// The first that is there.
    Earliest,
    /// The high watermark.
    HighWatermark,
    /// The last stable offset: no open transaction lies below it.
    LastStable,
}

struct Options(NonNull<c::rd_kafka_AdminOptions_t>);

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; requests copy what they need.
        unsafe { c::rd_kafka_AdminOptions_destroy(self.0.as_ptr()) }
    }
}

impl Options {
    fn new(client: &Client, operation: c::rd_kafka_admin_op_t, bound: Duration) -> Self {
        // SAFETY: the client is alive.
        let options = unsafe { c::rd_kafka_AdminOptions_new(client.raw(), operation) };
        let options = Options(NonNull::new(options).expect("the operation is one that has options"));
        let bound = millis(bound).clamp(1, 3_600_000);
        // SAFETY: the options are alive; without a place for a message none is written.
        unsafe { c::rd_kafka_AdminOptions_set_request_timeout(options.0.as_ptr(), bound, ptr::null_mut(), 0) };
        options
    }
}

/// The broker that is the controller, as far as the client knows.
pub(super) fn controller(client: &Client) -> i32 {
    // SAFETY: the client is alive; without a time-out only what is known is answered.
    unsafe { c::rd_kafka_controllerid(client.raw(), 0) }
}

/// Asks for topics, by name. Asks the controller, or the given broker.
pub(super) fn ask_topics(client: &Arc<Client>, topics: &[&str], broker: Option<i32>, bound: Duration) -> Result<Call> {
    let answers = Queue::new(client);
    let options = Options::new(client, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, bound);
    if let Some(broker) = broker {
        // SAFETY: the options are alive; without a place for a message none is written.
        unsafe { c::rd_kafka_AdminOptions_set_broker(options.0.as_ptr(), broker, ptr::null_mut(), 0) };
    }
    let names: Vec<CString> = topics.iter().map(|topic| c_text(topic)).collect::<Result<_>>()?;
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: all is alive during the calls; names and options are copied; the answer comes to the queue.
    unsafe {
        let collection = c::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        c::rd_kafka_DescribeTopics(client.raw(), collection, options.0.as_ptr(), answers.queue.as_ptr());
        c::rd_kafka_TopicCollection_destroy(collection);
    }
    Ok(Call { answers })
}

/// Asks for one offset of each of the partitions, in one request per broker. No partition may be named twice.
pub(super) fn ask_offsets<'a>(
    client: &Arc<Client>,
    partitions: impl IntoIterator<Item = (&'a str, i32)>,
    spec: OffsetSpec,
    bound: Duration,
) -> Result<Call> {
    let asked = match spec {
        OffsetSpec::Earliest => c::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST,
        OffsetSpec::HighWatermark | OffsetSpec::LastStable => c::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_LATEST,
    };
    let isolation = match spec {
        OffsetSpec::LastStable => c::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED,
        _ => c::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED,
    };
    ask_list(client, partitions.into_iter().map(|(topic, at)| (topic, at, asked as i64)), isolation, bound)
}

/// Asks for the first offset of each partition whose timestamp is as late as the one beside it, in milliseconds since 1970,
/// or later; the answer is -1 for a partition without one.
pub(super) fn ask_offsets_at<'a>(
    client: &Arc<Client>,
    times: impl IntoIterator<Item = (&'a str, i32, i64)>,
    bound: Duration,
) -> Result<Call> {
    ask_list(client, times, c::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED, bound)
}

fn ask_list<'a>(
    client: &Arc<Client>,
    asked: impl IntoIterator<Item = (&'a str, i32, i64)>,
    isolation: c::rd_kafka_IsolationLevel_t,
    bound: Duration,
) -> Result<Call> {
    let answers = Queue::new(client);
    let options = Options::new(client, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS, bound);
    let list = PartitionList::new(asked.into_iter().map(|(topic, at, asked)| (topic, at, asked, None)))?;
    // SAFETY: all is alive during the calls; list and options are copied; the answer comes to the queue.
    unsafe {
        let _ = check(c::rd_kafka_AdminOptions_set_isolation_level(options.0.as_ptr(), isolation));
        c::rd_kafka_ListOffsets(client.raw(), list.0.as_ptr(), options.0.as_ptr(), answers.queue.as_ptr());
    }
    Ok(Call { answers })
}

impl Call {
    /// Waits this long for the answer. It comes within the bound of the request, at worst as an error.
    pub(super) fn wait(&self, slice: Duration) -> Option<Answer> {
        // SAFETY: the queue is alive; the event is ours to destroy.
        let event = unsafe { c::rd_kafka_queue_poll(self.answers.queue.as_ptr(), millis(slice)) };
        NonNull::new(event).map(|event| Answer { event, _client: Arc::clone(&self.answers.client) })
    }
}

impl Answer {
    /// Why the whole request failed, if it did.
    pub(super) fn error(&self) -> Option<(Code, String)> {
        // SAFETY: the event is alive.
        let code = Code(unsafe { by_number::rd_kafka_event_error(self.event.as_ptr()) });
        // SAFETY: as above; the text belongs to the event and is copied.
        (code != Code::NONE).then(|| (code, text_of(unsafe { c::rd_kafka_event_error_string(self.event.as_ptr()) })))
    }

    /// The topics, if topics were asked for.
    pub(super) fn topics(&self) -> Vec<TopicInfo> {
        let mut infos = Vec::new();
        // SAFETY: the event is alive, and with it everything that is reached from it; the library answers null if the
        // event is of another kind.
        unsafe {
            let result = c::rd_kafka_event_DescribeTopics_result(self.event.as_ptr());
            if result.is_null() {
                return infos;
            }
            let mut count = 0;
            let topics = c::rd_kafka_DescribeTopics_result_topics(result, &mut count);
            for at in 0..count {
                let topic = *topics.add(at);
                let error = c::rd_kafka_TopicDescription_error(topic);
                let error = if error.is_null() { Code::NONE } else { Code(by_number::rd_kafka_error_code(error)) };
                let mut partition_count = 0;
                let partitions = c::rd_kafka_TopicDescription_partitions(topic, &mut partition_count);
                infos.push(TopicInfo {
                    name: text_of(c::rd_kafka_TopicDescription_name(topic)),
                    id: uuid_text(c::rd_kafka_TopicDescription_topic_id(topic)),
                    partitions: (0..partition_count)
                        .map(|at| c::rd_kafka_TopicPartitionInfo_partition(*partitions.add(at)))
                        .collect(),
                    error,
                });
            }
        }
        infos
    }

    /// The offsets, if offsets were asked for.
    pub(super) fn offsets(&self) -> Vec<OffsetInfo> {
        let mut infos = Vec::new();
        // SAFETY: as in `topics`. Error codes are read as numbers.
        unsafe {
            let result = c::rd_kafka_event_ListOffsets_result(self.event.as_ptr());
            if result.is_null() {
                return infos;
            }
            let mut count = 0;
            let entries = c::rd_kafka_ListOffsets_result_infos(result, &mut count);
            for at in 0..count {
                let entry = c::rd_kafka_ListOffsetsResultInfo_topic_partition(*entries.add(at));
                let epoch = c::rd_kafka_topic_partition_get_leader_epoch(entry);
                infos.push(OffsetInfo {
                    topic: text_of((*entry).topic),
                    partition: (*entry).partition,
                    offset: (*entry).offset,
                    epoch: (epoch >= 0).then_some(epoch),
                    error: Code(ptr::addr_of!((*entry).err).cast::<i32>().read()),
                });
            }
        }
        infos
    }
}

/// An id as text; none if it is missing or all zero, which is how brokers without topic ids answer.
fn uuid_text(id: *const c::rd_kafka_Uuid_t) -> Option<String> {
    if id.is_null() {
        return None;
    }
    // SAFETY: the id is alive; the text belongs to it and is copied.
    unsafe {
        let zero = c::rd_kafka_Uuid_most_significant_bits(id) == 0 && c::rd_kafka_Uuid_least_significant_bits(id) == 0;
        (!zero).then(|| text_of(c::rd_kafka_Uuid_base64str(id)))
    }
}

/// The queue to which all partitions of a client go that were not taken off it.
#[cfg(feature = "testing")]
pub(super) fn common_queue(client: &Arc<Client>) -> Queue {
    // SAFETY: the client is alive; a client with a group id has this queue.
    let queue = unsafe { c::rd_kafka_queue_get_consumer(client.raw()) };
    Queue { queue: NonNull::new(queue).expect("a consumer has a queue"), client: Arc::clone(client) }
}
