//! callgate: a tool-call gateway.
