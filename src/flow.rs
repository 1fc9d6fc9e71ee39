//! Where a decision meets an effect: the only module that performs what `call` decides.
//!
//! The doors (`ingress`, `compensate`) hand requests in and get a [`told::Told`] back; none of
//! them decides anything about a call.

pub mod told;
