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

    /// The same within this width: the last column is cut to what fits, and columns that there is no
    /// room for are left out, the last ones first.
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
        let widths = self.fitting((0..self.columns.len()).map(width).collect());
        let heading = self.columns.iter().map(|(name, _)| *name);
        let heading: Vec<&str> = heading.take(widths.len()).collect();
        let mut text = self.line(&heading, &widths, |_, cell| paint.dim(cell));
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| cut(cell, *width));
            let cells: Vec<String> = cells.collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            text.push_str(&self.line(&cells, &widths, &color));
        }
        text
    }

    /// The widths of the columns that fit. The first one is always shown.
    fn fitting(&self, mut widths: Vec<usize>) -> Vec<usize> {
        let all = widths.len();
        while let [before @ .., last] = &mut widths[..] {
            let room = self.width.saturating_sub(before.iter().map(|width| width + 2).sum());
            let is_cut = before.len() + 1 == all && room >= LEAST;
            if before.is_empty() || *last <= room || is_cut {
                *last = (*last).min(if before.is_empty() { *last } else { room });
                break;
            }
            widths.pop();
        }
        widths
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_into_a_width() {
        let table = |width| {
            let columns = [("run", Align::Left), ("age", Align::Right), ("goal", Align::Left)];
            let mut table = Table::new(&columns).within(width);
            table.row(["計画".into(), "12m".into(), "Fix the failing test".into()]);
            table.row(["b".into(), "1s".into(), String::new()]);
            table.render(Paint::new(false), |_, cell| cell.to_owned())
        };
        insta::assert_snapshot!(table(80), @r"
        run   age  goal
        計画  12m  Fix the failing test
        b      1s
        ");
        insta::assert_snapshot!(table(20), @r"
        run   age  goal
        計画  12m  Fix the …
        b      1s
        ");
        insta::assert_snapshot!(table(18), @r"
        run   age
        計画  12m
        b      1s
        ");
        insta::assert_snapshot!(table(8), @r"
        run
        計画
        b
        ");
        assert_eq!(table(1), table(8));
    }
}
