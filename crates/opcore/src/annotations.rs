//! Requests that users make by annotation.
//!
//! A request is carried out once for each new value. The status records which value was carried out: with the
//! annotation alone it would be carried out again after every restart.

use kube::ResourceExt;

/// The value of an annotation; none if it is empty.
pub fn value<'a>(object: &'a impl ResourceExt, key: &str) -> Option<&'a str> {
    object.annotations().get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether the value of an annotation is `true`.
pub fn is_true(object: &impl ResourceExt, key: &str) -> bool {
    value(object, key) == Some("true")
}

/// The value that an annotation requests, unless the status records that it was carried out.
pub fn request<'a>(object: &'a impl ResourceExt, key: &str, handled: Option<&str>) -> Option<&'a str> {
    value(object, key).filter(|value| Some(*value) != handled)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn a_request_is_carried_out_once_for_each_value() {
        let mut object = ConfigMap::default();
        assert_eq!(request(&object, "retry", None), None);
        object.annotations_mut().insert("retry".to_owned(), "a@1".to_owned());
        assert_eq!(request(&object, "retry", None), Some("a@1"));
        assert_eq!(request(&object, "retry", Some("a@1")), None);
        object.annotations_mut().insert("retry".to_owned(), "a@2".to_owned());
        assert_eq!(request(&object, "retry", Some("a@1")), Some("a@2"));
        object.annotations_mut().insert("retry".to_owned(), String::new());
        assert_eq!(request(&object, "retry", Some("a@1")), None);
        assert!(!is_true(&object, "retry"));
    }
}
