//! Health checks in CEL: the fields of an object are the variables.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::{Context, IdedExpr, Program, Value as Answer};
use serde_json::Value;

mod bounds;

/// An expression that is true or false for an object.
#[derive(Debug)]
pub struct Expression {
    program: IdedExpr,
    text: String,
}

/// The stack for the parser, which calls itself for each bracket, before anything can be counted: enough for the longest
/// text. Only what is used of it takes memory.
const PARSER_STACK: usize = 64 * 1024 * 1024;

/// The fields that every object has, whether they are set or not.
const FIELDS: [&str; 6] = ["apiVersion", "kind", "metadata", "spec", "status", "data"];

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// When it is not valid, as one line that names the position, or when it is nested too deeply.
    pub fn compile(text: &str) -> Result<Self, String> {
        let parse = || {
            let parsed = Program::compile(text).map_err(|errors| refusal(&errors.to_string()))?;
            bounds::bounded(parsed.expression().clone())
        };
        // The parser is generated code of another project, and its input comes from users: it may panic, or be nested so
        // deeply that it needs a large stack. What is too deep for others is dropped there as well.
        let program = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("parser".to_owned()).stack_size(PARSER_STACK);
            let parsing = thread.spawn_scoped(scope, parse).map_err(|error| format!("it cannot be parsed: {error}"))?;
            parsing.join().unwrap_or_else(|_| Err("the expression cannot be parsed".to_owned()))
        })?;
        Ok(Self { program, text: text.to_owned() })
    }

    /// The source of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is true for an object.
    ///
    /// # Errors
    ///
    /// When this cannot be evaluated, for example because the expression uses a field that does not exist (yet).
    pub fn holds(&self, object: &Value) -> Result<bool, String> {
        self.holds_given(|context| {
            for field in FIELDS {
                let value = object.get(field).cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
                context.add_variable(field, value).map_err(|error| error.to_string())?;
            }
            Ok(())
        })
    }

    fn holds_given(&self, fill: impl FnOnce(&mut Context<'_, '_>) -> Result<(), String>) -> Result<bool, String> {
        let answer = || {
            let mut context = Context::default();
            fill(&mut context)?;
            bounds::allow_steps(&mut context)?;
            match context.resolve(&self.program) {
                Ok(Answer::Bool(answer)) => Ok(answer),
                Ok(_) => Err("the result of the expression is not a boolean".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        };
        // The interpreter is code of another project, and its input comes from users: a panic must not end the watch
        // that calls it. Everything that it works on is created and dropped in here.
        catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| Err("the expression cannot be evaluated".to_owned()))
    }
}

/// The parser's first message, with the position; it has a limit of its own for nesting, which it words for programmers.
fn refusal(words: &str) -> String {
    if words.contains("Recursion limit") {
        return bounds::too_deep();
    }
    let line = words.lines().next().unwrap_or_default();
    line.trim_start_matches("ERROR: <input>:").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(text: &str, object: &Value) -> Result<bool, String> {
        Expression::compile(text).unwrap().holds(object)
    }

    #[test]
    fn the_fields_of_an_object_are_variables() {
        let database = json!({"metadata": {"generation": 2}, "status": {"phase": "Ready", "observed": 2}});
        assert_eq!(holds("status.phase == 'Ready'", &database), Ok(true));
        assert_eq!(holds("status.observed == metadata.generation", &database), Ok(true));
        assert_eq!(holds("has(status.error)", &database), Ok(false));
    }

    #[test]
    fn what_is_not_there_yet_is_distinguished_from_false() {
        assert!(holds("status.phase == 'Ready'", &json!({})).unwrap_err().contains("phase"));
        assert!(holds("1 + 1", &json!({})).is_err());
    }

    #[test]
    fn an_interpreter_that_panics_ends_nothing_but_its_own_answer() {
        let expression = Expression::compile("broken()").unwrap();
        let answer = expression.holds_given(|context| {
            let broken = || -> bool { panic!("as the interpreter might") };
            context.add_function("broken", broken).map_err(|error| error.to_string())
        });
        assert_eq!(answer, Err("the expression cannot be evaluated".to_owned()));
    }

    /// Runs with as much stack as the threads of the operator have.
    fn on_a_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).unwrap().join().unwrap()
    }

    #[test]
    fn an_expression_that_is_nested_without_end_is_refused_and_takes_nothing_down() {
        let nested = |open: &str, close: &str, times: usize| open.repeat(times) + "true" + &close.repeat(times);
        let texts = [
            nested("(", ")", 2046),
            nested("[", "]", 2046),
            nested("!(", ")", 1364),
            "1".to_owned() + &"+1".repeat(2047),
            "status".to_owned() + &".a".repeat(2045),
            "size(".repeat(680) + "''" + &")".repeat(680),
            nested("status.all(x,", ")", 290),
        ];
        for text in texts {
            let begin: String = text.chars().take(20).collect();
            assert!(text.len() <= 4096, "{begin}");
            let compiled = on_a_small_stack(move || Expression::compile(&text).map(|_| ()));
            let refused = compiled.expect_err(&begin);
            assert!(refused.contains("nested more than 32 levels deep"), "{begin}: {refused}");
        }
    }

    #[test]
    fn what_is_nested_as_deeply_as_allowed_is_evaluated_on_a_small_stack() {
        let sum = "1".to_owned() + &"+1".repeat(30) + " == 31";
        let brackets = "(".repeat(60) + "status.ok" + &")".repeat(60);
        let loops = (0..10).fold("true".to_owned(), |inner, n| format!("[1].all(x{n}, {inner})"));
        for text in [sum, brackets, loops, vec!["status.ok"; 300].join(" && ")] {
            let answer = on_a_small_stack(move || holds(&text, &json!({ "status": { "ok": true } })));
            assert_eq!(answer, Ok(true));
        }
    }

    #[test]
    fn an_expression_evaluates_a_bounded_number_of_elements() {
        let object = |count: usize| json!({ "status": { "list": vec![json!({ "name": "a" }); count] } });
        let quadratic = "status.list.all(a, status.list.exists(b, b.name != a.name || b.name == a.name))";
        assert_eq!(holds(quadratic, &object(300)), Ok(true));
        let each = "status.list.filter(a, a.name == 'a').map(a, a.name).exists_one(n, n == 'b') == false";
        assert_eq!(holds(each, &object(10_000)), Ok(true));
        for text in [
            "status.list.all(a, status.list.all(b, status.list.all(c, a.name == c.name)))",
            "status.list.map(a, status.list.map(b, b.name)).size() > 0",
            "status.list.exists(a, status.list.filter(b, b.name != 'a').size() > 0)",
            "status.list.all(a, status.list.exists_one(b, b.name != 'a') == false)",
        ] {
            let refused = holds(text, &object(2000)).unwrap_err();
            assert!(refused.contains("more than 100000 elements"), "{text}: {refused}");
        }
    }

    #[test]
    fn an_expression_that_does_not_compile_is_answered_with_the_place() {
        let error = Expression::compile("status.phase ==").unwrap_err();
        assert!(error.starts_with("1:16: Syntax error"), "{error}");
        for odd in ["", "(((", "'a' +", "\u{0}", "\"\\u12\"", "a.b.c.", "}{"] {
            assert!(Expression::compile(odd).is_err(), "{odd:?}");
        }
    }
}
