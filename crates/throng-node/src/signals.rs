//! Signals of a node. Their handlers are installed before the node does anything.
//!
//! | signal | [`Signals::listen`] | [`Signals::listen_at_terminal`] |
//! |---|---|---|
//! | SIGINT, SIGTERM | stops in order; a second one stops at once | the same |
//! | SIGHUP | reads the certificate again; without one, nothing | stops, because its terminal has gone |
//! | SIGQUIT | ends with a core dump, as by the system | stops |
//! | SIGUSR1, SIGUSR2 | nothing | nothing |
//! | SIGPIPE | nothing: a write into a closed pipe is an error | the same |
//! | SIGXFSZ | nothing: a write beyond the limit of file sizes is an error | the same |
//!
//! Invariant: a signal that the table does not send to the system ends no node without a drain, whenever it comes.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::http::Tls;
use crate::log::error_chain;

/// Signals of a node: those that stop it, and those on which it acts otherwise.
///
/// A handler that is installed stays, also when this is dropped.
pub struct Signals {
    pub(crate) stops: Stops,
    pub(crate) others: Others,
}

/// Signals that stop a node.
pub(crate) struct Stops(Vec<Signal>);

/// Signals that stop no node, with their names.
pub(crate) struct Others(Vec<(&'static str, Signal)>);

impl Signals {
    /// Installs the handlers of a service, which goes on when its terminal has gone.
    ///
    /// # Errors
    /// The error of the operating system.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime.
    pub fn listen() -> io::Result<Signals> {
        let mut signals = Signals::install()?;
        signals.others.0.push((HANGUP, signal(SignalKind::hangup())?));
        Ok(signals)
    }

    /// Installs the handlers of a program for a person at a terminal, which stops when that has gone.
    ///
    /// # Errors
    /// The error of the operating system.
    ///
    /// # Panics
    /// If the caller is outside a tokio runtime.
    pub fn listen_at_terminal() -> io::Result<Signals> {
        let mut signals = Signals::install()?;
        signals.stops.0.extend([signal(SignalKind::hangup())?, signal(SignalKind::quit())?]);
        Ok(signals)
    }

    /// Installs the handlers that all programs have.
    fn install() -> io::Result<Signals> {
        let stops = vec![signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        let others = vec![
            ("SIGUSR1", signal(SignalKind::user_defined1())?),
            ("SIGUSR2", signal(SignalKind::user_defined2())?),
        ];
        // A handler stays when its stream is dropped. Rust itself ignores SIGPIPE.
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
        Ok(Signals { stops: Stops(stops), others: Others(others) })
    }

    /// Waits for the next signal that stops the node.
    pub async fn stop(&mut self) {
        self.stops.next().await;
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Stops {
    /// Waits for the next signal that stops the node.
    pub(crate) async fn next(&mut self) {
        poll_fn(|cx| {
            // Each of them is polled until one is ready, so that any may wake the task.
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Others {
    /// Acts on each signal, and logs it. Never ends.
    pub(crate) async fn act(&mut self, tls: Option<&Tls>) {
        loop {
            match (self.next().await, tls) {
                (HANGUP, Some(tls)) => reload(tls.clone()).await,
                (HANGUP, None) => tracing::warn!(
                    "ignored SIGHUP: there is no certificate to read again; settings take effect at the next start"
                ),
                (name, _) => tracing::warn!("ignored {name}, which means nothing to a node"),
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        poll_fn(|cx| {
            let mut came = self
                .0
                .iter_mut()
                .filter_map(|(name, signal)| signal.poll_recv(cx).is_ready().then_some(*name));
            came.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Reads the certificate again, for the connections from then on.
async fn reload(tls: Tls) {
    match tokio::task::spawn_blocking(move || tls.reload()).await {
        Ok(Ok(())) => tracing::info!("read the certificate and its key again"),
        Ok(Err(error)) => tracing::error!(
            error = error_chain(&error),
            "cannot use the new certificate; the old one stays"
        ),
        // The runtime is shutting down.
        Err(_) => {}
    }
}

const HANGUP: &str = "SIGHUP";
