//! Signals of a node. Their handlers are installed before the node does anything.
//!
//! | signal | `throng serve` | `throng demo` |
//! |---|---|---|
//! | SIGINT, SIGTERM | stops in order; a second one stops at once | the same |
//! | SIGHUP | reads the certificate again; without one, nothing | stops, because its terminal has gone |
//! | SIGQUIT | ends with a core dump, as by the system | stops |
//! | SIGUSR1, SIGUSR2 | nothing | nothing |
//! | SIGPIPE | nothing: a write into a closed pipe is an error | the same |
//! | SIGXFSZ | nothing: a write beyond the limit of file sizes is an error | the same |
//!
//! Invariant: a signal that the table does not send to the system ends no node without a drain, whenever it comes.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::certificate::Certificate;

/// Streams of all signals of a node.
pub(crate) struct Signals {
    pub(crate) stops: Stops,
    pub(crate) others: Others,
}

/// Program that gets the signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// A node that goes on when its terminal has gone.
    Serve,
    /// A node for a person at a terminal.
    Demo,
}

/// Signals that stop a node.
pub(crate) struct Stops(Vec<Signal>);

/// Signals that stop no node, with their names.
pub(crate) struct Others(Vec<(&'static str, Signal)>);

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The error of the operating system.
    ///
    /// # Panics
    /// Panics if the caller is outside a tokio runtime.
    pub(crate) fn listen(recipient: Recipient) -> io::Result<Signals> {
        let Stops(mut stops) = Stops::listen()?;
        let mut others = vec![
            ("SIGUSR1", signal(SignalKind::user_defined1())?),
            ("SIGUSR2", signal(SignalKind::user_defined2())?),
        ];
        // A handler stays when its stream is dropped. Rust itself ignores SIGPIPE.
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
        let hangup = signal(SignalKind::hangup())?;
        match recipient {
            Recipient::Serve => others.push((HANGUP, hangup)),
            Recipient::Demo => stops.extend([hangup, signal(SignalKind::quit())?]),
        }
        Ok(Signals { stops: Stops(stops), others: Others(others) })
    }
}

impl Stops {
    /// Installs the handlers of SIGINT and SIGTERM.
    ///
    /// # Errors
    /// The error of the operating system.
    ///
    /// # Panics
    /// Panics if the caller is outside a tokio runtime.
    pub(crate) fn listen() -> io::Result<Stops> {
        Ok(Stops(vec![signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

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
    /// Acts on each signal, by a line of the log at least. Never ends.
    pub(crate) async fn act(&mut self, certificate: Option<&Certificate>) {
        loop {
            match (self.next().await, certificate) {
                (HANGUP, Some(certificate)) => certificate.reload().await,
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

const HANGUP: &str = "SIGHUP";
