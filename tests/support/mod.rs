//! What the end-to-end tests share: a real broker, rows for its topics, and readers of tables that are not ours.

pub mod authority;
pub mod broker;
pub mod certificates;
pub mod child;
pub mod gate;
pub mod hdfs;
pub mod loader;
pub mod pipeline;
pub mod place;
pub mod s3;
pub mod service;
pub mod table;
#[cfg(test)]
mod tests;
pub mod tools;

/// A topic with one partition that ends in rows and markers which are not read: offsets 0 and 1 are rows, 2 their commit
/// marker, 3 an aborted row, 4 its marker. With it the producer that wrote them.
pub fn topic_that_ends_in_markers(broker: &broker::Broker) -> (String, loader::Transactions) {
    let topic = broker::unique_topic("markers");
    broker.create_topic(&topic, 1, &[]);
    let transactions = loader::Transactions::new(broker.bootstrap(), &topic);
    transactions.begin();
    transactions.write(&topic, 0, 0..2);
    transactions.commit();
    transactions.begin();
    transactions.write(&topic, 0, 2..3);
    transactions.abort();
    (topic, transactions)
}
