//! Fetches the demo model for real: `cargo run -p infr-hub --example fetch_demo [CACHE]`.

use std::time::Instant;

use infr_hub::{HubOptions, ModelRef, Progress, resolve};

struct Print {
    total: u64,
    done: u64,
    shown: u64,
}

impl Progress for Print {
    fn start(&mut self, total: Option<u64>, label: &str) {
        *self = Self { total: total.unwrap_or(0), done: 0, shown: 0 };
        println!("{label}: {} bytes", self.total);
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        let tenth = self.done * 10 / self.total.max(1);
        if tenth > self.shown {
            self.shown = tenth;
            println!("{} %", tenth * 10);
        }
    }

    fn finish(&mut self) {
        println!("finished after {} bytes", self.done);
    }
}

#[allow(clippy::disallowed_methods)]
fn main() {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(mut options) = HubOptions::from_variables(&variable) else {
        println!("no variable says where the cache is");
        return;
    };
    if let Some(cache) = std::env::args().nth(1) {
        options.cache_dir = cache.into();
    }
    println!("{options:?}");
    let start = Instant::now();
    let found = resolve(&ModelRef::Demo, &options, &mut Print { total: 0, done: 0, shown: 0 });
    match found {
        Ok(path) => println!("{} in {:.2} s", path.display(), start.elapsed().as_secs_f64()),
        Err(error) => println!("{error}\nafter {:.2} s", start.elapsed().as_secs_f64()),
    }
}
