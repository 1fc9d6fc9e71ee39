//! Addresses over real sockets and an injected resolver.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::StatusCode;

use super::*;
use crate::clock::Clock;
use crate::config::route::{Endpoint, Upstream};
use crate::upstream::tests::peer::{self, Peer};
use crate::upstream::{Ended, Exchange, Mode, Outgoing, Payload, Terms, Tool};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ANY: Reach = Reach::Any { avoid: None };
const TERMS: Terms = Terms {
    connect: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    max_kept: 1024,
    mode: Mode::Auto,
};

fn rule() -> Ejection {
    Ejection {
        consecutive: 2,
        base: Duration::from_millis(1),
        ..Ejection::default()
    }
}

fn core() -> Core {
    Core::start(0, Clock::start())
}

fn outgoing() -> Outgoing {
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::HOST, "tool".parse().unwrap());
    Outgoing {
        method: http::Method::GET,
        target: http::uri::PathAndQuery::from_static("/"),
        headers: headers.into(),
        body: Payload::from(bytes::Bytes::new()),
    }
}

/// A tool at these endpoints, as one route has it.
fn tool(endpoints: &[Endpoint], rule: Option<&Ejection>) -> (Vec<Arc<Tool>>, Option<Addresses>) {
    let made = |endpoint: &Endpoint| {
        let upstream = Upstream {
            address: Arc::from(endpoint.address()),
            ..peer::upstream(endpoint)
        };
        Tool::new(&upstream, 1).unwrap()
    };
    let tools: Vec<_> = endpoints.iter().map(made).collect();
    let seats: Vec<_> = tools
        .iter()
        .map(|tool| (tool.address(), tool.destination()))
        .collect();
    let addresses = Addresses::new(&seats, rule, &Directory::default());
    (tools, addresses)
}

fn endpoint(port: u16) -> Endpoint {
    peer::endpoint(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn named(port: u16) -> Endpoint {
    Endpoint {
        host: Arc::from("tool.test"),
        authority: Arc::from(format!("tool.test:{port}")),
        ..endpoint(port)
    }
}

fn status(code: u16) -> Outcome {
    Outcome::Answered(Reading::by_status(StatusCode::from_u16(code).unwrap()))
}

#[tokio::test]
async fn one_url_that_is_never_ejected_is_nobodys_business() {
    assert!(tool(&[endpoint(1)], None).1.is_none());
    assert!(tool(&[endpoint(1)], Some(&rule())).1.is_some());
    assert!(tool(&[endpoint(1), endpoint(2)], None).1.is_some());
}

#[tokio::test]
async fn sends_under_way_are_spread_and_count_until_they_are_over() {
    let (_, addresses) = tool(&[endpoint(1), endpoint(2)], None);
    let addresses = addresses.unwrap();
    let choose = |reach| addresses.choose(reach, Mono(0)).unwrap();
    let held: Vec<_> = (0..6).map(|_| choose(ANY)).collect();
    for site in [0, 1] {
        assert_eq!(held.iter().filter(|one| one.site == site).count(), 3);
    }
    let (ones, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|one| one.site == 0);
    drop(ones);
    assert!((0..3).map(|_| choose(ANY)).all(|one| one.site == 0));
    assert_eq!(choose(Reach::Only(1)).site, 1, "bound to the busy one");
    drop(others);
    assert!(addresses.show(Mono(0)).iter().all(|one| one.sends == 0));
}

#[tokio::test]
async fn what_counts_as_a_failure_is_the_rules_and_a_4xx_never_is() {
    let table = [
        (status(500), true),
        (status(503), true),
        (status(200), false),
        (status(404), false),
        (status(429), false),
        (Outcome::NotSent(NotSent::Connect), true),
        (Outcome::NotSent(NotSent::Tls), true),
        (Outcome::NotSent(NotSent::Refused), false),
        (Outcome::Unclear(Unclear::Timeout), true),
        (Outcome::Unclear(Unclear::Disconnect), true),
    ];
    let core = core();
    for (outcome, fails) in table {
        for on in [Cause::ALL.to_vec(), Vec::new()] {
            let counts = fails && !on.is_empty();
            let rule = Ejection { on, ..rule() };
            let (_, addresses) = tool(&[endpoint(1)], Some(&rule));
            let addresses = addresses.unwrap();
            for _ in 0..2 {
                let mut chosen = addresses.choose(ANY, Mono(0)).unwrap();
                chosen.seated.ended(outcome, &core);
            }
            assert_eq!(addresses.is_out(0), counts, "{outcome:?} {rule:?}");
        }
    }
}

#[tokio::test]
async fn one_send_goes_to_an_ejected_url_that_has_just_shown_that_it_lives() {
    let core = core();
    let (_, addresses) = tool(&[endpoint(1), endpoint(2)], Some(&rule()));
    let addresses = addresses.unwrap();
    assert!(addresses.vouched(0).is_none(), "it is in");
    for _ in 0..2 {
        let mut chosen = addresses.choose(Reach::Only(0), Mono(0)).unwrap();
        chosen.seated.ended(status(500), &core);
    }
    assert!(addresses.choose(Reach::Only(0), Mono(0)).is_none());
    let probe = addresses.vouched(0).unwrap();
    assert_eq!(probe.site, 0);
    assert!(addresses.vouched(0).is_none(), "one at a time");
    drop(probe);
    let mut probe = addresses.vouched(0).unwrap();
    let returned = probe.seated.ended(status(200), &core);
    assert_eq!(returned, Some(Change::Returned));
    assert!(addresses.choose(Reach::Only(0), Mono(0)).is_some());
}

#[tokio::test]
async fn no_ejection_holds_a_round_back() {
    let core = core();
    let (_, addresses) = tool(&[endpoint(1)], Some(&rule()));
    let addresses = addresses.unwrap();
    for _ in 0..2 {
        let mut chosen = addresses.choose_in_round(ANY, Mono(0)).unwrap();
        chosen.seated.ended(status(500), &core);
    }
    assert!(addresses.choose(ANY, Mono(0)).is_none());
    let mut probe = addresses.choose_in_round(ANY, Mono(0)).unwrap();
    let mut beside = addresses.choose_in_round(ANY, Mono(0)).unwrap();
    assert!(addresses.choose(ANY, Mono(0)).is_none());
    assert_eq!(beside.seated.ended(status(200), &core), None);
    assert!(
        addresses.choose(ANY, Mono(0)).is_none(),
        "its probe decides"
    );
    let returned = probe.seated.ended(status(200), &core);
    assert_eq!(returned, Some(Change::Returned));
    assert!(addresses.choose(ANY, Mono(0)).is_some());
}

#[tokio::test]
async fn one_url_that_is_out_takes_nothing_until_one_send_has_brought_it_back() {
    let core = core();
    let (_, addresses) = tool(&[endpoint(1)], Some(&rule()));
    let addresses = addresses.unwrap();
    for _ in 0..2 {
        let mut chosen = addresses.choose(ANY, core.clock.mono()).unwrap();
        chosen.seated.ended(status(500), &core);
    }
    let Standing::Out = addresses.show(Mono(0))[0].standing else {
        panic!("two failures in a row eject it");
    };
    assert!(addresses.choose(ANY, Mono(0)).is_none());
    let later = core.clock.mono().after(Duration::from_secs(1));
    let probe = addresses.choose(ANY, later).unwrap();
    assert!(addresses.choose(ANY, later).is_none(), "one at a time");
    // Its caller has left: the next one finds out.
    drop(probe);
    let mut probe = addresses.choose(ANY, later).unwrap();
    assert_eq!(
        probe.seated.ended(status(200), &core),
        Some(Change::Returned)
    );
    assert!(addresses.choose(ANY, later).is_some());
}

#[tokio::test]
async fn a_question_to_an_ejected_url_is_its_probe_when_one_is_due() {
    let core = core();
    let (_, addresses) = tool(&[endpoint(1), endpoint(2)], Some(&rule()));
    let addresses = addresses.unwrap();
    assert!(
        addresses.question(0, core.clock.mono()).is_none(),
        "it is in"
    );
    for _ in 0..2 {
        let mut chosen = addresses.choose(Reach::Only(0), Mono(0)).unwrap();
        chosen.seated.ended(status(500), &core);
    }
    assert!(addresses.is_out(0) && !addresses.is_out(1));
    let later = core.clock.mono().after(Duration::from_secs(1));
    let mut question = addresses.question(0, later).unwrap();
    assert!(addresses.question(0, later).is_none());
    assert_eq!(question.answered(true, later), Some(Change::Returned));
    assert!(!addresses.is_out(0));
}

#[tokio::test]
async fn what_is_known_about_an_address_outlives_the_route_that_found_it_out() {
    let core = core();
    let directory = Directory::default();
    let route = || {
        let upstream = peer::upstream(&endpoint(1));
        let tool = Tool::new(&upstream, 1).unwrap();
        let rule = Ejection {
            consecutive: 1,
            ..rule()
        };
        Addresses::new(
            &[(tool.address(), tool.destination())],
            Some(&rule),
            &directory,
        )
        .unwrap()
    };
    let before = route();
    let mut chosen = before.choose(ANY, Mono(0)).unwrap();
    chosen.seated.ended(status(500), &core);
    let after = route();
    assert!(after.is_out(0), "as a reload makes it");
    drop((chosen, before, after));
    assert!(!route().is_out(0), "nobody had it any more");
}

/// What a scripted resolver says, and how often it was asked.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<(Vec<Says>, usize)>>);

/// One answer of it.
type Says = Result<Vec<SocketAddr>, ()>;

impl Script {
    fn of(says: &[Says]) -> Self {
        Self(Arc::new(Mutex::new((says.to_vec(), 0))))
    }

    fn resolver(&self) -> Resolver {
        let script = self.clone();
        Box::new(move |host, _| {
            assert_eq!(&*host, "tool.test");
            let mut state = script.0.lock();
            state.1 += 1;
            let at = (state.1 - 1).min(state.0.len() - 1);
            let says = state.0[at].clone();
            Box::pin(async move { says.map_err(|()| std::io::Error::other("no such name")) })
        })
    }

    fn asked(&self) -> usize {
        self.0.lock().1
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waited = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited)
        .await
        .expect(what);
}

/// Sends once to whichever address is chosen; the peer that saw it.
async fn send(core: &Core, addresses: &Addresses, peers: &[&Peer]) -> SocketAddr {
    let mut chosen = addresses.choose(ANY, core.clock.mono()).unwrap();
    let exchange = Exchange::new(core, &chosen.to, outgoing(), TERMS);
    let answered = async {
        let accepts = peers.iter().map(|peer| {
            Box::pin(async move {
                let mut sock = peer.accept().await;
                sock.request().await;
                sock.write(OK.replace("Content", "Connection: close\r\nContent"))
                    .await;
                peer.addr()
            })
        });
        futures_any(accepts.collect()).await
    };
    let (ended, at) = tokio::join!(exchange, answered);
    assert!(matches!(ended, Ended::Collected(_)), "{ended:?}");
    chosen.seated.ended(status(200), core);
    at
}

/// The first of these to end.
async fn futures_any<F: Future + Unpin>(mut all: Vec<F>) -> F::Output {
    std::future::poll_fn(|cx| {
        let ready = all
            .iter_mut()
            .find_map(|one| match std::pin::Pin::new(one).poll(cx) {
                std::task::Poll::Ready(done) => Some(done),
                std::task::Poll::Pending => None,
            });
        ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

#[tokio::test]
async fn every_address_of_a_name_is_weighed_for_itself() {
    let (one, other) = (Peer::bind().await, Peer::bind().await);
    let core = core();
    let script = Script::of(&[Ok(vec![one.addr(), other.addr()])]);
    let (tools, addresses) = tool(&[named(1)], Some(&rule()));
    let addresses = addresses.unwrap();
    tools[0]
        .destination()
        .name()
        .unwrap()
        .resolve_by(script.resolver());
    // Nothing is known yet: the first connection waits for the look-up.
    send(&core, &addresses, &[&one, &other]).await;
    let shown = addresses.show(Mono(0));
    let at: Vec<_> = shown.iter().map(|one| one.at).collect();
    assert_eq!(at, [Some(one.addr()), Some(other.addr())]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(send(&core, &addresses, &[&one, &other]).await);
    }
    for peer in [&one, &other] {
        assert_eq!(seen.iter().filter(|at| **at == peer.addr()).count(), 2);
    }
    assert_eq!(script.asked(), 1, "not on the way of a call");
    // One of them fails: the other one is used.
    let failing = loop {
        let mut chosen = addresses.choose(ANY, Mono(0)).unwrap();
        if chosen.seated.seat.at == Some(one.addr())
            && chosen.seated.ended(status(500), &core).is_some()
        {
            break one.addr();
        }
    };
    let mut left = (0..4).map(|_| addresses.choose(ANY, Mono(0)).unwrap());
    assert!(left.all(|chosen| chosen.seated.seat.at != Some(failing)));
    assert!(
        !addresses.is_out(0),
        "the url is not out while one address is in"
    );
}

#[tokio::test]
async fn a_name_is_looked_up_again_behind_the_calls_and_a_failure_keeps_what_was_found() {
    let (one, other) = (Peer::bind().await, Peer::bind().await);
    let script = Script::of(&[
        Ok(vec![one.addr()]),
        Err(()),
        Ok(vec![]),
        Ok(vec![other.addr(), one.addr()]),
        Ok(vec![one.addr(), other.addr()]),
    ]);
    let core = core();
    let name = Name::new(&Arc::from("tool.test"), 1, Duration::from_millis(20));
    name.resolve_by(script.resolver());
    assert_eq!(*name.addresses(&core).await.unwrap(), [one.addr()]);
    let version = name.version();
    until("the failed look-up", || name.failing().is_some()).await;
    assert_eq!(
        *name.found().unwrap(),
        [one.addr()],
        "what was found before is used"
    );
    assert_eq!(*name.addresses(&core).await.unwrap(), [one.addr()]);
    until("the other address", || name.found().unwrap().len() == 2).await;
    assert!(name.failing().is_none());
    assert_eq!(name.version(), version + 1);
    let asked = script.asked();
    until("more look-ups", || script.asked() > asked + 1).await;
    assert_eq!(
        name.version(),
        version + 1,
        "the same in another order is nothing new"
    );
    drop(name);
    let asked = script.asked();
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(script.asked() <= asked + 1, "nobody has the name any more");
}

#[tokio::test]
async fn a_connection_that_fails_has_the_name_looked_up_again_and_a_storm_asks_once() {
    let nobody = peer::nobody().await;
    let peer = Peer::bind().await;
    let script = Script::of(&[Ok(vec![nobody]), Ok(vec![peer.addr()])]);
    let core = core();
    let (tools, _) = tool(&[named(1)], None);
    let to = tools[0].destination();
    let name = Arc::clone(to.name().unwrap());
    name.resolve_by(script.resolver());
    let ended = Exchange::new(&core, to, outgoing(), TERMS).await;
    assert!(
        matches!(ended, Ended::NotSent(NotSent::Connect)),
        "{ended:?}"
    );
    assert_eq!(script.asked(), 1, "the look-up was a moment ago");
    // However many connections fail meanwhile.
    until("the second look-up", || {
        name.hurry(&core);
        script.asked() == 2
    })
    .await;
    until("what it found", || *name.found().unwrap() == [peer.addr()]).await;
    assert_eq!(script.asked(), 2);
    let answers = async {
        let mut sock = peer.accept().await;
        sock.request().await;
        sock.write(OK).await;
    };
    let (ended, ()) = tokio::join!(Exchange::new(&core, to, outgoing(), TERMS), answers);
    assert!(matches!(ended, Ended::Collected(_)), "{ended:?}");
}

#[tokio::test]
async fn a_name_that_was_never_found_is_not_asked_for_by_every_call() {
    let script = Script::of(&[Err(())]);
    let core = core();
    let name = Name::new(&Arc::from("tool.test"), 1, Duration::from_secs(60));
    name.resolve_by(script.resolver());
    for _ in 0..10 {
        assert!(name.addresses(&core).await.is_err());
    }
    assert_eq!(script.asked(), 1);
}
