//! demo
mod books;
mod client;
mod faults;
mod parcel;
mod tool;
