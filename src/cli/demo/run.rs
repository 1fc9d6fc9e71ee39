//! The course of the demonstration: the plain client against one faulty tool, callgate against a
//! fresh one with the same plan, then the books of both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::audit::Figures;
use super::baseline;
use super::batch::Batch;
use super::faults::Plan;
use super::parcel::tracking_no;
use super::push;
use super::queue::Operator;
use super::tool::Tool;
use super::{DemoArgs, Gateway, Launch, Setting, YAML, table};

/// The variable of demo.yaml that carries the tool's address.
const TOOL_VARIABLE: &str = "DEMO_TOOL";
/// The longest work of the plan takes 6.5 s; the books are read when the tool has put it down.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(10);
/// A shorter wait needs no word on the screen.
const QUIET_UNNOTICED: Duration = Duration::from_millis(200);

/// Runs both columns, prints the table; says whether callgate's column is clean.
pub(super) async fn compare(args: &DemoArgs, launch: Launch) -> Result<bool> {
    let plan = Plan::new(args.seed, args.calls);
    let batch = Batch {
        plan,
        calls: args.calls,
        workers: args.workers,
    };
    eprintln!(
        "{} calls, {} workers, seed {}: first a plain client, then callgate, on the same faults",
        args.calls, args.workers, args.seed
    );
    let plain = plain(batch).await?;
    let tool = Tool::open(plan).context("opening the faulty tool")?;
    let folder = tempfile::tempdir().context("making the temporary folder")?;
    let setting = Setting {
        yaml: YAML.to_owned(),
        folder: folder.path().to_owned(),
        variables: BTreeMap::from([(
            TOOL_VARIABLE.to_owned(),
            format!("http://{}", tool.address()),
        )]),
    };
    let gateway = tokio::task::spawn_blocking(|| launch(setting)).await?;
    let gateway = gateway.context("starting the gateway")?;
    let column = through(batch, &tool, &gateway).await;
    if let Ok(column) = &column {
        report(&plain, column);
        if args.keep {
            invite(args, &tool, &gateway);
            tokio::signal::ctrl_c().await?;
        }
    }
    tokio::task::spawn_blocking(|| gateway.stop()).await?;
    Ok(column?.clean())
}

/// Serves the faulty tool alone until it is interrupted.
pub(super) async fn serve_tool(args: &DemoArgs) -> Result<()> {
    let tool = Tool::open(Plan::new(args.seed, args.calls)).context("opening the faulty tool")?;
    let address = tool.address();
    println!(
        "faulty tool on http://{address}, seed {}, {} planned items",
        args.seed, args.calls
    );
    println!("  POST /track               {{trackingNo, date, scene}} with X-Call-Id");
    println!("  GET  /receipts/{{callId}}   what became of a call");
    println!("  GET  /books               what really happened");
    println!(
        "{}",
        call(
            address,
            "try-1",
            &tracking_no(args.calls, false),
            "delivery"
        )
    );
    println!(
        "a scene can name a fault: answer-late, work-slowly, crawl, reset-before, reset-after,"
    );
    println!("close-before, close-after, error-before, error-after, rate-limit");
    tokio::signal::ctrl_c().await?;
    Ok(())
}

async fn plain(batch: Batch) -> Result<Figures> {
    let tool = Tool::open(batch.plan).context("opening the faulty tool")?;
    let pushed = baseline::push(batch, tool.address()).await?;
    settle_down(&tool).await;
    let mut figures = Figures::of(&pushed.accounts, &tool.books());
    figures.push = pushed.took;
    Ok(figures)
}

async fn through(batch: Batch, tool: &Tool, gateway: &Gateway) -> Result<Figures> {
    let mut night = push::push(batch, gateway, tool).await?;
    let mut operator = Operator::new(gateway.callers, gateway.admin);
    let queue = operator.drain().await?;
    for (place, call_id) in &night.open {
        night.accounts[*place].told = operator.receipt(call_id).await?;
    }
    settle_down(tool).await;
    let mut figures = Figures::of(&night.accounts, &tool.books());
    figures.push = night.took;
    figures.queue = queue;
    figures.dead_letters = operator.dead_letters().await?;
    Ok(figures)
}

/// Waits until the tool has put its work down: what a caller gave up on may still be done.
async fn settle_down(tool: &Tool) {
    if tool.quiet(QUIET_UNNOTICED).await {
        return;
    }
    eprintln!("the tool still works on what its callers gave up on: waiting for its books");
    if !tool.quiet(QUIET_WAIT_MAX).await {
        eprintln!("the tool is still working after {QUIET_WAIT_MAX:?}; its books may be early");
    }
}

fn report(plain: &Figures, gateway: &Figures) {
    println!("{}", table::table(plain, gateway));
    println!("{}", table::LEGEND);
    println!("{}", table::verdict(plain, gateway));
    for finding in &gateway.findings {
        eprintln!("callgate, {finding}");
    }
}

fn invite(args: &DemoArgs, tool: &Tool, gateway: &Gateway) {
    let (callers, admin) = (gateway.callers, gateway.admin);
    let number = |ahead| tracking_no(args.calls + ahead, false);
    println!(
        "\nstill serving, ctrl-c ends it; the tool's own books: http://{}/books",
        tool.address()
    );
    println!("{}", call(callers, "try-1", &number(0), "delivery"));
    println!("{}", call(callers, "try-late", &number(1), "answer-late"));
    println!("curl -s http://{callers}/_callgate/receipts/try-late");
    println!("curl -s http://{admin}/api/v1/dead-letters");
}

fn call(address: SocketAddr, call_id: &str, number: &str, scene: &str) -> String {
    format!(
        "curl -i http://{address}/track -H 'Content-Type: application/json' \
         -H 'X-Call-Id: {call_id}' \
         -d '{{\"trackingNo\":\"{number}\",\"date\":\"2026-11-30\",\"scene\":\"{scene}\"}}'"
    )
}

#[cfg(test)]
mod tests;
