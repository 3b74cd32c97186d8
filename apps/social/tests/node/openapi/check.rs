//! A validator for the part of OpenAPI and JSON Schema that the document uses.
//!
//! Invariants: a keyword that this validator does not know is a defect, so no constraint is passed over. A field of
//! an answer that its schema does not list is a deviation, although JSON Schema allows it: the schemas of answers are
//! open only for later versions of the service.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::harness::Answer;

pub(super) struct Document(pub(super) Value);

/// Headers that HTTP itself gives an answer; the document does not list them.
const HTTP_HEADERS: &[&str] =
    &["cache-control", "connection", "content-length", "content-type", "date", "upgrade"];

const MEDIA_TYPE: &str = "application/problem+json";

impl Document {
    pub(super) fn paths(&self) -> BTreeSet<&str> {
        keys(&self.0["paths"]).collect()
    }

    pub(super) fn methods(&self, path: &str) -> BTreeSet<&str> {
        keys(&self.0["paths"][path]).collect()
    }

    /// Returns the documented path of an operation on the path of a request. A segment without a parameter goes first.
    pub(super) fn template(&self, method: &str, path: &str) -> &str {
        let fits = |template: &&str| {
            let (mut segments, mut found) = (template.split('/'), path.split('/'));
            segments
                .by_ref()
                .zip(found.by_ref())
                .all(|(segment, found)| segment.starts_with('{') || segment == found)
                && template.split('/').count() == path.split('/').count()
                && self.0["paths"][template].get(method).is_some()
        };
        let fitting = keys(&self.0["paths"]).filter(fits);
        fitting
            .min_by_key(|template| template.matches('{').count())
            .unwrap_or_else(|| panic!("the document has no operation {method} {path}"))
    }

    /// Returns all answers without a problem, as `METHOD PATH STATUS`, and the names of all problems.
    pub(super) fn listed(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut successes, mut problems) = (BTreeSet::new(), BTreeSet::new());
        for (method, path, operation) in self.operations() {
            for (status, response) in fields(&operation["responses"]) {
                let content = &self.resolve(response)["content"];
                match content.get(MEDIA_TYPE) {
                    None => drop(successes.insert(format!("{method} {path} {status}"))),
                    Some(problem) => {
                        let types = &problem["schema"]["allOf"][1]["properties"]["type"]["enum"];
                        let types =
                            types.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap());
                        problems
                            .extend(types.map(|kind| kind.rsplit(':').next().unwrap().to_owned()));
                        if content.get("application/json").is_some() {
                            successes.insert(format!("{method} {path} {status}"));
                        }
                    }
                }
            }
        }
        (successes, problems)
    }

    /// Returns the deviations of an answer from the documented responses of an operation.
    pub(super) fn deviations(&self, method: &str, template: &str, answer: &Answer) -> Vec<String> {
        let responses = &self.0["paths"][template][method]["responses"];
        let Some(response) = responses.get(answer.status.to_string()) else {
            return vec![format!("status {} is not listed", answer.status)];
        };
        let response = self.resolve(response);
        let mut found = Vec::new();
        let media_type = answer.headers.get("content-type").map(|value| value.to_str().unwrap());
        match (media_type, &response["content"]) {
            (None, Value::Null) => {
                if !answer.body.is_null() {
                    found.push("a body is not listed".to_owned());
                }
            }
            (Some(media_type), content) if content.get(media_type).is_some() => {
                self.check(&content[media_type]["schema"], &answer.body, "body", true, &mut found);
            }
            (media_type, _) => found.push(format!("content type {media_type:?} is not listed")),
        }
        for (name, header) in fields(&response["headers"]) {
            let (name, header) = (name.to_lowercase(), self.resolve(header));
            match answer.headers.get(&name) {
                Some(value) => {
                    let value = Value::from(value.to_str().unwrap());
                    self.check(&header["schema"], &value, &name, true, &mut found);
                }
                None if header["required"] == true => {
                    found.push(format!("header {name} is missing"))
                }
                None => {}
            }
        }
        if answer.headers.get("cache-control").is_none_or(|value| value != "no-store") {
            found.push("a cache may keep the answer".to_owned());
        }
        let listed: BTreeSet<String> = keys(&response["headers"]).map(str::to_lowercase).collect();
        for name in answer.headers.keys().map(|name| name.as_str()) {
            if !listed.contains(name) && !HTTP_HEADERS.contains(&name) {
                found.push(format!("header {name} is not listed"));
            }
        }
        found
    }

    /// Returns the deviations of an accepted body from the documented body of a request.
    pub(super) fn body_deviations(&self, method: &str, template: &str, body: &[u8]) -> Vec<String> {
        let request = &self.0["paths"][template][method]["requestBody"];
        let mut found = Vec::new();
        match &request["content"]["application/json"]["schema"] {
            Value::Null => found.push("a request with a body is not listed".to_owned()),
            schema => {
                let body = serde_json::from_slice(body).unwrap();
                self.check(schema, &body, "request", true, &mut found);
            }
        }
        found
    }

    /// Checks a value against a schema. If `closed`, a field that the schema does not list is a deviation.
    fn check(
        &self,
        schema: &Value,
        value: &Value,
        at: &str,
        closed: bool,
        found: &mut Vec<String>,
    ) {
        for (keyword, limit) in fields(schema) {
            let number = |value: &Value| value.as_f64();
            let length = value.as_str().map(|text| text.chars().count() as f64);
            let mut fail = |why: &str| found.push(format!("{at}: {value} is {why} {limit}"));
            match keyword {
                "$ref" => self.check(self.resolve(schema), value, at, false, found),
                "allOf" => {
                    for part in limit.as_array().unwrap() {
                        self.check(part, value, at, false, found);
                    }
                }
                "anyOf" => {
                    let fits = |part: &&Value| {
                        let mut found = Vec::new();
                        self.check(part, value, at, true, &mut found);
                        found.is_empty()
                    };
                    if !limit.as_array().unwrap().iter().any(|part| fits(&part)) {
                        fail("none of");
                    }
                }
                "type" if !is_of_type(value, limit) => fail("not of the type"),
                "const" if value != limit => fail("not"),
                "enum" if !limit.as_array().unwrap().contains(value) => fail("not in"),
                "minimum" if number(value) < number(limit) => fail("below"),
                "maximum" if number(value) > number(limit) => fail("above"),
                "minLength" if length < number(limit) => fail("shorter than"),
                "maxLength" if length > number(limit) => fail("longer than"),
                "pattern"
                    if !value
                        .as_str()
                        .is_some_and(|text| matches(text, limit.as_str().unwrap())) =>
                {
                    fail("not like");
                }
                "required" => {
                    let names = limit.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                    for name in names.filter(|name| value.get(name).is_none()) {
                        found.push(format!("{at}: field {name} is missing"));
                    }
                }
                "properties" => {
                    for (name, schema) in fields(limit) {
                        if let Some(value) = value.get(name) {
                            self.check(schema, value, &format!("{at}.{name}"), true, found);
                        }
                    }
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.check(limit, item, &format!("{at}[]"), true, found);
                    }
                }
                _ => {}
            }
        }
        let listed = self.properties(schema);
        if closed && !listed.is_empty() {
            for name in keys(value).filter(|name| !listed.contains(name)) {
                found.push(format!("{at}: field {name} is not listed"));
            }
        }
    }

    /// Returns the fields that a schema lists, also through references.
    fn properties<'a>(&'a self, schema: &'a Value) -> BTreeSet<&'a str> {
        let mut listed: BTreeSet<&str> = keys(&schema["properties"]).collect();
        if schema.get("$ref").is_some() {
            listed.extend(self.properties(self.resolve(schema)));
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            listed.extend(self.properties(part));
        }
        listed
    }

    /// Returns what is wrong with the document itself.
    pub(super) fn defects(&self) -> Vec<String> {
        let mut found = Vec::new();
        let document = &self.0;
        allow(document, "document", "openapi info paths components", &mut found);
        allow(&document["info"], "info", "title version license description", &mut found);
        if !document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")) {
            found.push("this is no OpenAPI 3.1".to_owned());
        }
        let components = &document["components"];
        let sections = "schemas parameters headers responses securitySchemes";
        allow(components, "components", sections, &mut found);
        for section in sections.split(' ') {
            for name in keys(&components[section]) {
                if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                {
                    found.push(format!("{name} is no name of a component"));
                }
            }
        }
        self.references(document, &mut found);
        if !found.is_empty() {
            return found; // The checks below follow the references.
        }
        for (name, schema) in fields(&components["schemas"]) {
            schema_defects(schema, name, &mut found);
        }
        for (section, known) in [
            ("parameters", "name in required schema description"),
            ("headers", "description required schema"),
        ] {
            for (name, value) in fields(&components[section]) {
                allow(value, name, known, &mut found);
                schema_defects(&value["schema"], name, &mut found);
            }
        }
        let mut ids = BTreeSet::new();
        for (method, path, operation) in self.operations() {
            let at = format!("{method} {path}");
            let known = "operationId summary description parameters requestBody responses security";
            allow(operation, &at, known, &mut found);
            let id = operation["operationId"].as_str().unwrap_or_default();
            if id.is_empty() || !ids.insert(id) {
                found.push(format!("{at}: the id {id:?} is used twice"));
            }
            if keys(&operation["responses"]).next().is_none() {
                found.push(format!("{at}: no responses"));
            }
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|parameter| self.resolve(parameter));
            let in_path = parameters
                .filter(|parameter| parameter["in"] == "path" && parameter["required"] == true);
            let in_path: BTreeSet<String> = in_path
                .map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap()))
                .collect();
            let segments =
                path.split('/').filter(|segment| segment.starts_with('{')).map(str::to_owned);
            let segments: BTreeSet<String> = segments.collect();
            if in_path != segments {
                found.push(format!("{at}: parameters {in_path:?}, but segments {segments:?}"));
            }
            for requirement in operation["security"].as_array().into_iter().flatten() {
                for name in keys(requirement)
                    .filter(|name| components["securitySchemes"].get(name).is_none())
                {
                    found.push(format!("{at}: there is no security scheme {name}"));
                }
            }
            for (status, response) in fields(&operation["responses"]) {
                let response = self.resolve(response);
                let at = format!("{at} {status}");
                allow(response, &at, "description headers content", &mut found);
                if !status.parse().is_ok_and(|status: u16| (100..600).contains(&status)) {
                    found.push(format!("{at}: not a status"));
                }
                if !response["description"].is_string() {
                    found.push(format!("{at}: no description"));
                }
                for (_, content) in fields(&response["content"]) {
                    allow(content, &at, "schema", &mut found);
                    schema_defects(&content["schema"], &at, &mut found);
                }
            }
        }
        found
    }

    fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = fields(&self.0["paths"]);
        paths.flat_map(|(path, item)| {
            fields(item).map(move |(method, operation)| (method, path, operation))
        })
    }

    /// Returns a value, or the value to which it refers.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                self.target(reference).unwrap_or_else(|| panic!("{reference} is missing"))
            }
            None => value,
        }
    }

    fn target(&self, reference: &str) -> Option<&Value> {
        self.0.pointer(reference.strip_prefix('#')?)
    }

    /// Finds references without a target.
    fn references(&self, value: &Value, found: &mut Vec<String>) {
        if let Some(reference) =
            value["$ref"].as_str().filter(|reference| self.target(reference).is_none())
        {
            found.push(format!("{reference} is missing"));
        }
        let items = value.as_array().into_iter().flatten();
        for part in fields(value).map(|(_, part)| part).chain(items) {
            self.references(part, found);
        }
    }
}

/// Finds keywords that this validator does not know, in a schema and its parts.
fn schema_defects(schema: &Value, at: &str, found: &mut Vec<String>) {
    let known = "$ref additionalProperties allOf anyOf const default description enum format items \
        maxLength maximum minLength minimum pattern properties required type";
    allow(schema, at, known, found);
    if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| parse(pattern).is_none()) {
        found.push(format!("{at}: the pattern {pattern} is unknown to the validator"));
    }
    let parts = ["allOf", "anyOf"]
        .into_iter()
        .flat_map(|name| schema[name].as_array().into_iter().flatten());
    let parts =
        parts.chain(schema.get("items")).chain(fields(&schema["properties"]).map(|(_, part)| part));
    for part in parts {
        schema_defects(part, at, found);
    }
}

/// Reports the fields of an object that are not among the known fields, which are separated by blanks.
fn allow(object: &Value, at: &str, known: &str, found: &mut Vec<String>) {
    if !object.is_object() {
        found.push(format!("{at}: not an object"));
    }
    for name in keys(object).filter(|name| known.split(' ').all(|known| known != *name)) {
        found.push(format!("{at}: {name} is unknown"));
    }
}

fn is_of_type(value: &Value, kind: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(_) => false,
        None => {
            kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| is_of_type(value, kind)))
        }
    }
}

/// Pattern `^[CLASS]{MIN,MAX}$`: ranges of characters, and the bounds of their number.
type Pattern = (Vec<(char, char)>, usize, usize);

fn parse(pattern: &str) -> Option<Pattern> {
    let (class, bounds) = pattern.strip_prefix("^[")?.strip_suffix("}$")?.split_once("]{")?;
    let (min, max) = bounds.split_once(',')?;
    let mut ranges = Vec::new();
    let characters: Vec<char> = class.chars().collect();
    let mut rest = &characters[..];
    loop {
        match *rest {
            [] => return Some((ranges, min.parse().ok()?, max.parse().ok()?)),
            ['\\' | '^' | '[', ..] => return None,
            [from, '-', to, ..] => {
                ranges.push((from, to));
                rest = &rest[3..];
            }
            [one, ..] => {
                ranges.push((one, one));
                rest = &rest[1..];
            }
        }
    }
}

fn matches(text: &str, pattern: &str) -> bool {
    let (ranges, min, max) =
        parse(pattern).unwrap_or_else(|| panic!("the pattern {pattern} is unknown"));
    (min..=max).contains(&text.chars().count())
        && text.chars().all(|found| ranges.iter().any(|&(from, to)| (from..=to).contains(&found)))
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

fn keys(value: &Value) -> impl Iterator<Item = &str> {
    fields(value).map(|(name, _)| name)
}
