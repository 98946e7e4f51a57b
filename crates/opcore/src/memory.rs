//! The allocator of all operators.
//!
//! A process that lists a thousand objects, and looks at each, needs for a moment a multiple of what it keeps. glibc's
//! allocator held on to that: of 104 MiB with a thousand objects, 69 were free. This one gives it back.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
