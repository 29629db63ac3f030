//! Keys that are pressed while the running stages are drawn: the terminal does not write them into the
//! drawing.

use std::io;

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The echo of the terminal of stdin. Drop restores it.
#[derive(Default)]
pub(crate) struct Echo {
    /// The settings before the first change.
    saved: Option<Termios>,
}

impl Echo {
    /// Turns it off, also when a shell has turned it on again while the process was stopped. A process
    /// in the background changes nothing: it would be stopped.
    pub(crate) fn turn_off(&mut self) {
        let Some(mut settings) = foreground() else { return };
        if settings.local_modes.contains(LocalModes::ECHO) {
            self.saved.get_or_insert_with(|| settings.clone());
            settings.local_modes.remove(LocalModes::ECHO);
            set(&settings);
        }
    }

    /// Restores the settings of before.
    pub(crate) fn restore(&mut self) {
        if let Some(saved) = self.saved.take()
            && foreground().is_some()
        {
            set(&saved);
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.restore();
    }
}

/// The settings of the terminal, unless this process is in its background.
fn foreground() -> Option<Termios> {
    let stdin = io::stdin();
    let is_behind = tcgetpgrp(&stdin).is_ok_and(|group| group != getpgrp());
    if is_behind { None } else { tcgetattr(&stdin).ok() }
}

/// A terminal that is closed needs no settings.
fn set(settings: &Termios) {
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, settings);
}
