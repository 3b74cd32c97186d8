//! A server in its own runtime, and the client's side of HTTP, for the tests over real sockets.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use serde_json::Value;
use throng_node::http::{Limits, Server, Serving};
use tokio::runtime::{Builder, Runtime};

/// Binds a server to a free port.
pub(crate) fn bind(limits: Limits) -> (Runtime, Server) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = runtime.block_on(Server::bind(any, limits)).unwrap();
    (runtime, server)
}

/// Starts a server of `router` on a free port.
pub(crate) fn serve(router: Router, limits: Limits) -> (Runtime, Serving) {
    let (runtime, server) = bind(limits);
    let serving = server.start(router, runtime.handle());
    (runtime, serving)
}

/// Connects to a server; reads fail after [`PATIENCE`].
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Time to wait for bytes before a test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(mut stream: TcpStream) -> Answer {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        Answer::parse(&String::from_utf8(all).unwrap())
    }

    pub(crate) fn parse(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole response head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, name: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("\r\ncontent-type: application/problem+json"), "{self:?}");
        assert!(self.head.contains("\r\ncache-control: no-store"), "{self:?}");
        let problem: Value = serde_json::from_str(&self.body).expect("the body is JSON");
        assert_eq!(problem["type"], format!("urn:throng:problem:{name}"), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert!(!problem["title"].as_str().unwrap().is_empty(), "{self:?}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{self:?}");
    }
}
