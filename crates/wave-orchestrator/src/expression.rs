//! Health checks in CEL: the fields of an object are the variables.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::{Context, Program, Value as Answer};
use serde_json::Value;

/// An expression that is true or false for an object.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    text: String,
}

/// The fields that every object has, whether they are set or not.
const FIELDS: [&str; 6] = ["apiVersion", "kind", "metadata", "spec", "status", "data"];

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// When it is not valid, as one line that names the position.
    pub fn compile(text: &str) -> Result<Self, String> {
        // The parser is generated code of another project, and its input comes from users.
        let program =
            catch_unwind(|| Program::compile(text)).map_err(|_| "the expression cannot be parsed".to_owned())?;
        let program = program.map_err(|errors| first_line(&errors.to_string()))?;
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
            match self.program.execute(&context) {
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

fn first_line(words: &str) -> String {
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

    #[test]
    fn an_expression_that_does_not_compile_is_answered_with_the_place() {
        let error = Expression::compile("status.phase ==").unwrap_err();
        assert!(error.starts_with("1:16: Syntax error"), "{error}");
        for odd in ["", "(((", "'a' +", "\u{0}", "\"\\u12\"", "a.b.c.", "}{"] {
            assert!(Expression::compile(odd).is_err(), "{odd:?}");
        }
    }
}
