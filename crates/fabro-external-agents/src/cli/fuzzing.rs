//! What the fuzz targets call; built with `--cfg fuzzing` only.

use super::CliAgent;
use super::answer::Answer;
use super::output::OutputReader;

/// Reads bytes as the output of every program, in two pieces.
pub fn read_output(bytes: &[u8]) {
    for agent in CliAgent::ALL {
        let mut reader = OutputReader::new(agent.program().output, Answer::default(), &|_| {});
        let (first, second) = bytes.split_at(bytes.len() / 2);
        reader.read(first);
        reader.read(second);
        let mut answer = reader.finish(&String::from_utf8_lossy(first));
        answer.settle_error();
    }
}
