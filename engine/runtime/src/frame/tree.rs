//! A schema as text, in the form of Spark's `printSchema`.

use arrow::datatypes::{DataType, Field, Schema};

/// The tree, with Spark's names of types where it has one.
pub(super) fn schema_tree(schema: &Schema) -> String {
    let mut text = String::from("root\n");
    for field in schema.fields() {
        add(&mut text, " |", field.name(), field, "nullable");
    }
    text
}

fn add(text: &mut String, indent: &str, name: &str, field: &Field, null_word: &str) {
    let (data_type, nullable) = (field.data_type(), field.is_nullable());
    text.push_str(&format!("{indent}-- {name}: {} ({null_word} = {nullable})\n", type_name(data_type)));
    let inner = format!("{indent}    |");
    match data_type {
        DataType::Struct(fields) => fields.iter().for_each(|field| add(text, &inner, field.name(), field, "nullable")),
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            add(text, &inner, "element", element, "containsNull");
        }
        DataType::Map(entries, _) => {
            if let DataType::Struct(entry) = entries.data_type()
                && let [key, value] = entry.as_ref()
            {
                // A key is never null, so Spark shows no word for it.
                text.push_str(&format!("{inner}-- key: {}\n", type_name(key.data_type())));
                add(text, &inner, "value", value, "valueContainsNull");
            }
        }
        _ => {}
    }
}

fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "void",
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 => "short",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "binary",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Timestamp(_, Some(_)) => "timestamp",
        DataType::Timestamp(_, None) => "timestamp_ntz",
        DataType::Struct(_) => "struct",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _) => "array",
        DataType::Map(_, _) => "map",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return format!("decimal({precision},{scale})"),
        other => return other.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Fields, TimeUnit};

    use super::*;

    #[test]
    fn tree_shows_nested_types_as_spark_does() {
        let int = |name: &str, nullable| Field::new(name, DataType::Int32, nullable);
        let entry = DataType::Struct(Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Float64, true),
        ]));
        let point =
            DataType::Struct(Fields::from(vec![int("x", false), Field::new("label", DataType::Utf8View, true)]));
        let schema = Schema::new(vec![
            Field::new("sensorId", DataType::Utf8, false),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
            Field::new("price", DataType::Decimal128(10, 2), true),
            Field::new("points", DataType::List(Arc::new(Field::new("item", point, true))), true),
            Field::new("tags", DataType::Map(Arc::new(Field::new("entries", entry, false)), false), true),
        ]);
        let expected = [
            "root",
            " |-- sensorId: string (nullable = false)",
            " |-- at: timestamp (nullable = true)",
            " |-- price: decimal(10,2) (nullable = true)",
            " |-- points: array (nullable = true)",
            " |    |-- element: struct (containsNull = true)",
            " |    |    |-- x: integer (nullable = false)",
            " |    |    |-- label: string (nullable = true)",
            " |-- tags: map (nullable = true)",
            " |    |-- key: string",
            " |    |-- value: double (valueContainsNull = true)",
            "",
        ];
        assert_eq!(schema_tree(&schema), expected.join("\n"));
    }
}
