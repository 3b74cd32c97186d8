//! A program without durable processes has the window, too.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use axum::Router;
use axum::routing::get;
use throng::prelude::*;
use throng_node::{DashboardAddress, Host, Options, ServeError, Signals};

struct Plain;

impl Process for Plain {}

/// Returns the answer to `GET path`, with its head.
fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_program_without_durable_processes_has_metrics_probes_and_an_admin_socket() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = Options {
            listen: any,
            dashboard: DashboardAddress::At(any),
            directory: Some(directory.path().to_owned()),
            ..Options::default()
        };
        let _plain = runtime.spawn(Plain).unwrap();
        let mut signals = Signals::listen().unwrap();
        let host = Host::open(runtime, None, options).await.unwrap();
        let host = host.with_metrics(|text| text.push_str("# TYPE mine gauge\nmine 7\n"));
        let router = Router::new().route("/hello", get(async || "hello"));
        let served = host.serve_beside(router, &mut signals, async |started| {
            let address = started.address();
            let socket = directory.path().join("admin.sock");
            let asked = tokio::task::spawn_blocking(move || {
                assert!(ask(address, "/hello").ends_with("\r\n\r\nhello"));
                assert!(ask(address, "/readyz").starts_with("HTTP/1.1 200"));
                let metrics = ask(address, "/metrics");
                assert!(metrics.contains("\nthrong_processes 1\n"), "{metrics}");
                assert!(metrics.contains("\nmine 7\n") && !metrics.contains("throng_store"));
                let mut admin = UnixStream::connect(socket).unwrap();
                admin.write_all(b"{\"v\":1,\"get\":\"list\",\"limit\":9}\n").unwrap();
                let mut line = String::new();
                BufReader::new(admin).read_line(&mut line).unwrap();
                assert!(line.contains("\"more\":false"), "{line}");
            });
            asked.await.unwrap();
        });
        served.await.unwrap();
        assert!(!directory.path().join("admin.sock").exists(), "the socket goes with the node");

        let nowhere = throng_node::serve(runtime, None, Options::default(), Router::new()).await;
        assert!(matches!(nowhere, Err(ServeError::NoDirectory)));
    });
}
