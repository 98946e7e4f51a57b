//! The limits of an expression. Its text comes from users, and so do the objects that it is evaluated for: neither may take
//! the process down, or keep it busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cel::common::ast::operators::{CONDITIONAL, LOGICAL_AND, LOGICAL_OR};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::{Context, ExecutionError};

/// How deep parts of an expression may be nested. The interpreter calls itself for each level, and a stack that overflows
/// ends the process.
const DEEPEST: usize = 32;
/// How many times `all`, `exists`, `map` and the like may look at an element, all of them together.
const MOST_STEPS: usize = 100_000;
/// The function that counts these. In the text of an expression it cannot be called.
const COUNT: &str = "@count";

/// Bounds a parsed expression: its depth now, its steps when it is evaluated.
///
/// # Errors
///
/// When it is nested too deeply.
pub(super) fn bounded(mut expression: IdedExpr) -> Result<IdedExpr, String> {
    if depth(&mut expression) > DEEPEST {
        return Err(too_deep());
    }
    count_steps(&mut expression);
    Ok(expression)
}

pub(super) fn too_deep() -> String {
    format!("it is nested more than {DEEPEST} levels deep; write it with fewer brackets, or as a list of && and ||")
}

/// Lets an expression be evaluated in this context, for a bounded number of steps.
pub(super) fn allow_steps(context: &mut Context<'_, '_>) -> Result<(), String> {
    let left = Arc::new(AtomicUsize::new(MOST_STEPS));
    let count = move || {
        let one_less = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        one_less.map(|_| true).map_err(|_| {
            let message = format!("more than {MOST_STEPS} elements would have to be looked at");
            ExecutionError::function_error("all, exists, map or filter", message)
        })
    };
    context.add_function(COUNT, count).map_err(|error| error.to_string())
}

/// The parts of which an expression consists.
fn parts(expression: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expression.expr {
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect(),
        Expr::Comprehension(comprehension) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = &mut **comprehension;
            vec![iter_range, accu_init, loop_cond, loop_step, result]
        }
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Select(select) => vec![&mut *select.operand],
        Expr::Map(map) => map.entries.iter_mut().flat_map(|entry| of_entry(&mut entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter_mut().flat_map(|entry| of_entry(&mut entry.expr)).collect(),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn of_entry(entry: &mut EntryExpr) -> Vec<&mut IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
    }
}

fn depth(expression: &mut IdedExpr) -> usize {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// Counts each step of each loop, before it does anything else. The interpreter recognises loops by their form, which
/// stays.
fn count_steps(expression: &mut IdedExpr) {
    parts(expression).into_iter().for_each(count_steps);
    let Expr::Comprehension(comprehension) = &mut expression.expr else { return };
    let step = &mut comprehension.loop_step;
    let body = match &mut step.expr {
        // all, exists; filter, exists_one, and map with a condition.
        Expr::Call(CallExpr { func_name, args, .. }) => match (func_name.as_str(), args.as_mut_slice()) {
            (LOGICAL_AND | LOGICAL_OR, [_, each]) | (CONDITIONAL, [each, ..]) => Some(each),
            // map
            (_, [_, IdedExpr { expr: Expr::List(ListExpr { elements, .. }), .. }]) => elements.first_mut(),
            _ => None,
        },
        _ => None,
    };
    match body {
        Some(body) => counted(body),
        None => counted(step),
    }
}

/// `expression`, and a step is counted before it is evaluated.
fn counted(expression: &mut IdedExpr) {
    let ided = |expr: Expr| IdedExpr { id: 0, expr };
    let count = Expr::Call(CallExpr { func_name: COUNT.to_owned(), ..CallExpr::default() });
    // It is never taken: the count is either true or an error.
    let otherwise = Expr::Literal(LiteralValue::Null);
    let args = vec![ided(count), std::mem::take(expression), ided(otherwise)];
    expression.expr = Expr::Call(CallExpr { func_name: CONDITIONAL.to_owned(), args, ..CallExpr::default() });
}
