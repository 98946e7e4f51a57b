//! The operator's built-in modules, each in a folder under `modules/`.

use std::collections::BTreeMap;

/// The built-in modules, with their files.
const BUILT_IN: &[(&str, &[(&str, &str)])] =
    &[("simple", &[("main.tf", include_str!("../../modules/simple/main.tf.tpl"))])];

/// The files of a built-in module.
///
/// # Errors
///
/// When there is no such module, or its template uses an unknown name; as text.
pub fn builtin(name: &str) -> Result<BTreeMap<String, String>, String> {
    let Some((_, files)) = BUILT_IN.iter().find(|(module, _)| *module == name) else {
        let known: Vec<&str> = BUILT_IN.iter().map(|(module, _)| *module).collect();
        return Err(format!("there is no built-in module {name:?}; available: {}", known.join(", ")));
    };
    let names = BTreeMap::from([("module", name)]);
    files.iter().map(|(path, template)| Ok(((*path).to_owned(), fill(template, &names)?))).collect()
}

/// Fills in `{{ name }}`. Only values that the operator itself knows are filled in: user input reaches a module only as
/// values of its variables.
///
/// # Errors
///
/// When a name is unknown, or a brace is not closed.
pub fn fill(template: &str, names: &BTreeMap<&str, &str>) -> Result<String, String> {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) =
            after.split_once("}}").ok_or_else(|| format!("\"{{{{\" without \"}}}}\" after {} bytes", filled.len()))?;
        let value = names.get(name.trim()).ok_or_else(|| format!("the template asks for {:?}", name.trim()))?;
        filled.push_str(before);
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_module_can_be_filled_in() {
        for (name, files) in BUILT_IN {
            assert_eq!(builtin(name).unwrap().len(), files.len());
        }
    }

    #[test]
    fn an_undefined_name_is_an_error_and_not_an_empty_text() {
        let names = BTreeMap::from([("module", "simple")]);
        assert_eq!(fill("# {{ module }}", &names).unwrap(), "# simple");
        assert!(fill("{{ lenght }}", &names).unwrap_err().contains("lenght"));
        assert!(fill("{{ module", &names).is_err());
    }

    #[test]
    fn an_unknown_module_is_reported_with_the_known_ones() {
        assert!(builtin("simpel").unwrap_err().contains("simple"));
    }
}
