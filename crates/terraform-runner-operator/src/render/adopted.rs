//! Whether a workspace may adopt a state that it names.

use super::inputs::Problem;
use crate::store::adopted::KEYS;

/// The Secret with a state to adopt, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Its name.
    pub secret: String,
    /// Its keys; none if the Secret does not exist.
    pub keys: Option<Vec<String>>,
    /// The workspace that owns the state, if it still exists.
    pub owner: Option<String>,
    /// Other workspaces that name it, too.
    pub others: Vec<String>,
}

impl Adopted {
    /// Whether it may be adopted.
    ///
    /// # Errors
    ///
    /// The reason why not, with the field.
    pub fn check(&self) -> Result<(), Problem> {
        let field = "spec.backend.managed.adopt.secretRef.name";
        let secret = &self.secret;
        let Some(keys) = &self.keys else {
            return Err(Problem::missing(field, format!("Secret {secret} does not exist")));
        };
        if !keys.iter().any(|key| KEYS.contains(&key.as_str())) {
            let message = format!("Secret {secret} has no state: none of the keys {}", KEYS.join(", "));
            return Err(Problem::missing(field, message));
        }
        if let Some(owner) = &self.owner {
            let message = format!(
                "Secret {secret} is the state of TerraformWorkspace {owner}, which still exists; first delete it with deletionPolicy Retain"
            );
            return Err(Problem::missing(field, message));
        }
        if let Some(other) = self.others.first() {
            let message = format!(
                "TerraformWorkspace {other} also refers to Secret {secret}, and both would manage the same resources; remove the reference from one of them"
            );
            return Err(Problem::missing(field, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_adopted_that_is_there_and_that_nobody_else_has() {
        let fine = Adopted { secret: "old".to_owned(), keys: Some(vec!["tfstate".to_owned()]), ..Adopted::default() };
        assert_eq!(fine.check(), Ok(()));
        let refused = [
            (Adopted { keys: None, ..fine.clone() }, "Secret old does not exist"),
            (Adopted { keys: Some(vec!["password".to_owned()]), ..fine.clone() }, "has no state"),
            (Adopted { owner: Some("network".to_owned()), ..fine.clone() }, "deletionPolicy Retain"),
            (Adopted { others: vec!["copy".to_owned()], ..fine.clone() }, "TerraformWorkspace copy"),
        ];
        for (adopted, words) in refused {
            let problem = adopted.check().unwrap_err();
            assert!(problem.message.contains(words) && problem.field.contains("adopt"), "{problem}");
        }
    }
}
