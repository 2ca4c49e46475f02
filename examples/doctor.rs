//! Whether a location can hold a checkpoint: races for names on it, and looks at what else the protocol needs.
//!
//! `cargo run --example doctor -- s3://bucket/folder`

use std::process::ExitCode;

use tidemill::prelude::*;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(location) = std::env::args().nth(1) else {
        eprintln!("usage: doctor LOCATION");
        return ExitCode::from(64);
    };
    tidemill::exit_code(examine(&location).await)
}

async fn examine(location: &str) -> tidemill::Result<()> {
    let session = Session::builder().build()?;
    for line in session.examine(location).await?.lines {
        println!("ok  {line}");
    }
    println!("{location} can hold checkpoints");
    Ok(())
}
