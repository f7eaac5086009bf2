"""The operators' dashboard and the API behind it: what they may see and do over HTTP, and who may."""
