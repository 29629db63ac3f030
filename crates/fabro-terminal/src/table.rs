//! Text in columns.

use std::fmt::Write as _;

use fabro_types::one_line;
use unicode_width::UnicodeWidthStr as _;

use crate::paint::Paint;
use crate::text::cut;

/// The longest text in a cell, in characters.
const CELL: usize = 100;

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left.
    Left,
    /// At the right, for numbers.
    Right,
}

/// The least width that the last column is cut to.
const LEAST: usize = 8;

/// Rows under a heading. Cells are kept on one line.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    width: usize,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), width: usize::MAX }
    }

    /// The same, with the last column cut to what fits into this width; left out where there is no
    /// room for it.
    pub fn within(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| one_line(&cell, CELL)).collect());
    }

    /// The table as text; `color` is given the column and the text of each cell.
    pub fn render(&self, paint: Paint, color: impl Fn(usize, &str) -> String) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let cells = cells.map(|cell| cell.width()).max().unwrap_or_default();
            cells.max(self.columns[column].0.width())
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let last = widths.len().saturating_sub(1);
        let before: usize = widths[..last].iter().map(|width| width + 2).sum();
        let room = self.width.saturating_sub(before);
        let shown = if widths[last] > room && room < LEAST { last } else { last + 1 };
        widths[last] = widths[last].min(room);
        let heading: Vec<&str> = self.columns.iter().map(|(name, _)| *name).take(shown).collect();
        let mut text = self.line(&heading, &widths, |_, cell| paint.dim(cell));
        for row in &self.rows {
            let cut_last = |(at, cell): (usize, &String)| {
                if at == last { cut(cell, room) } else { cell.clone() }
            };
            let cells: Vec<String> = row.iter().enumerate().take(shown).map(cut_last).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            text.push_str(&self.line(&cells, &widths, &color));
        }
        text
    }

    fn line(
        &self,
        cells: &[&str],
        widths: &[usize],
        color: impl Fn(usize, &str) -> String,
    ) -> String {
        let last = cells.iter().rposition(|cell| !cell.is_empty()).unwrap_or_default();
        let mut text = String::new();
        for (column, cell) in cells.iter().enumerate().take(last + 1) {
            let room = widths[column].saturating_sub(cell.width());
            let is_right = self.columns[column].1 == Align::Right;
            let (before, after) = if is_right { (room, 0) } else { (0, room) };
            let after = if column == last { 0 } else { after + 2 };
            let _ =
                write!(text, "{}{}{}", " ".repeat(before), color(column, cell), " ".repeat(after));
        }
        text.push('\n');
        text
    }
}
