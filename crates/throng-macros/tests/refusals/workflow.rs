//! Functions that cannot be workflows.

#![allow(unused_variables)]

use throng_durable::{Failure, Steps, workflow};

#[workflow(retries = 5)]
async fn option(cx: &Steps) -> Result<(), Failure> {
    Ok(())
}

#[workflow]
fn waits_for_nothing(cx: &Steps) -> Result<(), Failure> {
    Ok(())
}

#[workflow]
async fn one_of_many<T>(cx: &Steps, input: T) -> Result<(), Failure> {
    Ok(())
}

#[workflow]
async fn without_steps() -> Result<(), Failure> {
    Ok(())
}

#[workflow]
async fn without_failure(cx: &Steps, input: u64) -> u64 {
    input
}

#[workflow]
async fn two_inputs(cx: &Steps, first: u64, second: u64) -> Result<(), Failure> {
    Ok(())
}

struct Order;

#[workflow]
async fn order(cx: &Steps, order: Order) -> Result<(), Failure> {
    Ok(())
}

#[workflow]
async fn result(cx: &Steps) -> Result<(), Failure> {
    Ok(())
}

#[workflow]
async fn __(cx: &Steps) -> Result<(), Failure> {
    Ok(())
}

#[workflow]
struct NotAFunction;

#[workflow]
async fn is_not_send(cx: &Steps) -> Result<(), Failure> {
    let local = std::rc::Rc::new(());
    cx.sleep(std::time::Duration::ZERO).await;
    drop(local);
    Ok(())
}

fn main() {}
