//! Whether a location can hold a checkpoint: races for names on it, and looks at what else the protocol needs.
//!
//! `cargo run --example doctor -- s3://bucket/folder`

use std::process::ExitCode;

use tidemill::prelude::*;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [location] = arguments.as_slice() else { return usage() };
    if location.starts_with('-') {
        return usage();
    }
    tidemill::exit_code(examine(location).await)
}

fn usage() -> ExitCode {
    eprintln!("usage: doctor LOCATION");
    ExitCode::from(64)
}

async fn examine(location: &str) -> tidemill::Result<()> {
    let session = Session::builder().build()?;
    for line in session.examine(location).await?.lines {
        println!("ok  {line}");
    }
    println!("{location} can hold checkpoints");
    Ok(())
}
