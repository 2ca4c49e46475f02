//! Stores of objects behind HTTP: Amazon S3 and its like, Google's, Azure's.
//!
//! They acknowledge only what is durable, and create without overwriting by a condition on the request. None of them
//! renames; a name is given by a copy within the store, which may put the same bytes there twice and never others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult, RetryConfig,
};

use super::open::Remote;
use super::{NoBucket, Store};
use crate::error::{Error, Result, code};
use crate::secret::Secret;

/// What the client tries again by itself: little, since every caller does so too, and knows for how long.
fn retries() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(2), base: 2. };
    RetryConfig { backoff, max_retries: 4, retry_timeout: Duration::from_secs(10) }
}

/// Opens a bucket of S3, or of a store that speaks like it.
#[cfg(feature = "s3")]
pub(super) fn open_s3(remote: &Remote<'_>, options: &[(&str, &Secret)]) -> Result<Arc<dyn Store>> {
    use object_store::ClientConfigKey;
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, S3ConditionalPut};

    let mut builder = AmazonS3Builder::from_env();
    for (name, value) in options {
        let key: Key = name.parse().map_err(|error| unknown_option(name, error))?;
        builder = builder.with_config(key, value.expose());
    }
    let value = |key: Key| builder.get_config_value(&key);
    check_sendable(remote.host, value)?;
    let allow_http = value(Key::Client(ClientConfigKey::AllowHttp)).map(|allow| allow.to_lowercase());
    let allowed = match allow_http.as_deref() {
        None | Some("false" | "0" | "no" | "off" | "n") => false,
        Some("true" | "1" | "yes" | "on" | "y") => true,
        Some(_) => {
            return Err(Error::new(code::INVALID_OPTION, "AWS_ALLOW_HTTP is neither true nor false")
                .fix("set it to true, or leave it out"));
        }
    };
    if let Some(text) = value(Key::S3Endpoint).or_else(|| value(Key::Endpoint)) {
        let endpoint = endpoint_of(&text)?;
        if endpoint.scheme() == "http" && !allowed {
            if !is_loopback(&endpoint) {
                return Err(Error::new(code::INVALID_OPTION, "the store's endpoint is reached without encryption")
                    .at("endpoint", endpoint)
                    .fix("use https://, or allow it with AWS_ALLOW_HTTP=true"));
            }
            builder = builder.with_allow_http(true);
        }
    }
    let builder = builder.with_bucket_name(remote.host).with_retry(retries());
    let store = builder.with_conditional_put(S3ConditionalPut::ETagMatch).build().map_err(refused)?;
    Ok(Arc::new(Cloud::new(Arc::new(store), remote)))
}

/// Opens a bucket of Google Cloud Storage.
#[cfg(feature = "gcs")]
pub(super) fn open_gcs(remote: &Remote<'_>, options: &[(&str, &Secret)]) -> Result<Arc<dyn Store>> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as Key};

    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (name, value) in options {
        let key: Key = name.parse().map_err(|error| unknown_option(name, error))?;
        builder = builder.with_config(key, value.expose());
    }
    let store = builder.with_bucket_name(remote.host).with_retry(retries()).build().map_err(refused)?;
    Ok(Arc::new(Cloud::new(Arc::new(store), remote)))
}

/// Opens a container of Azure Blob Storage.
#[cfg(feature = "azure")]
pub(super) fn open_azure(remote: &Remote<'_>, options: &[(&str, &Secret)]) -> Result<Arc<dyn Store>> {
    use object_store::azure::{AzureConfigKey as Key, MicrosoftAzureBuilder};

    let mut builder = MicrosoftAzureBuilder::from_env();
    for (name, value) in options {
        let key: Key = name.parse().map_err(|error| unknown_option(name, error))?;
        builder = builder.with_config(key, value.expose());
    }
    let url = format!("{}://{}", remote.scheme, remote.host);
    let store = builder.with_url(url).with_retry(retries()).build().map_err(refused)?;
    Ok(Arc::new(Cloud::new(Arc::new(store), remote)))
}

fn unknown_option(name: &str, error: object_store::Error) -> Error {
    Error::new(code::UNKNOWN_OPTION, format!("the store has no option \"{name}\"")).because(error)
}

fn refused(error: object_store::Error) -> Error {
    Error::new(code::INVALID_OPTION, "the store cannot be set up")
        .because(error)
        .fix("see the variables of the environment that the store's own tools use")
}

/// Refuses what the client cannot send: it would fail hard, and late. Values are not repeated.
#[cfg(feature = "s3")]
fn check_sendable(bucket: &str, value: impl Fn(object_store::aws::AmazonS3ConfigKey) -> Option<String>) -> Result<()> {
    use object_store::aws::AmazonS3ConfigKey as Key;

    for (name, key) in [
        ("AWS_ACCESS_KEY_ID", Key::AccessKeyId),
        ("AWS_SECRET_ACCESS_KEY", Key::SecretAccessKey),
        ("AWS_SESSION_TOKEN", Key::Token),
        ("AWS_REGION", Key::Region),
        ("AWS_DEFAULT_REGION", Key::DefaultRegion),
    ] {
        if value(key).is_some_and(|value| !value.chars().all(|character| character.is_ascii_graphic())) {
            return Err(Error::new(code::INVALID_OPTION, format!("{name} holds a blank, a line feed or the like"))
                .fix("set it to the bare value; a file's last line feed is no part of it"));
        }
    }
    if !bucket.chars().all(|character| character.is_ascii_alphanumeric() || "-._:".contains(character)) {
        return Err(Error::new(code::INVALID_OPTION, format!("\"{}\" is no name of a bucket", bucket))
            .fix("a bucket's name has letters, digits, \"-\" and \".\""));
    }
    Ok(())
}

/// The endpoint that a text names. What is refused is not repeated: it may hold a password.
#[cfg(feature = "s3")]
fn endpoint_of(text: &str) -> Result<url::Url> {
    let is_plain = text.chars().all(|character| character.is_ascii_graphic());
    let url = url::Url::parse(text).ok().filter(|url| is_plain && matches!(url.scheme(), "http" | "https"));
    let (what, fix) = match url {
        _ if text.is_empty() => ("is empty", "unset it, or set it to https://HOST"),
        None => ("is no URL of a store", "write https://HOST or http://HOST:PORT, without blanks"),
        Some(url) if !url.username().is_empty() || url.password().is_some() => {
            ("holds a user or a password", "give credentials as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        }
        Some(url) if url.query().is_some() || url.fragment().is_some() => {
            ("has a query or a fragment", "leave out what follows \"?\" or \"#\"")
        }
        Some(url) => return Ok(url),
    };
    Err(Error::new(code::INVALID_OPTION, format!("AWS_ENDPOINT_URL {what}")).fix(fix))
}

/// Whether a URL stays on this machine.
#[cfg(feature = "s3")]
fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// A bucket, or a folder of one.
#[derive(Clone)]
struct Cloud {
    inner: Arc<PrefixStore<Arc<dyn ObjectStore>>>,
    url: String,
}

impl Cloud {
    fn new(inner: Arc<dyn ObjectStore>, remote: &Remote<'_>) -> Self {
        Cloud { inner: Arc::new(PrefixStore::new(inner, remote.prefix.clone())), url: remote.url() }
    }
}

// The client behind holds keys.
impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cloud({})", self.url)
    }
}

impl std::fmt::Display for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

/// To a listing, S3 says in its answer's text alone that a bucket is missing, or that a user may not.
fn of_list(error: object_store::Error) -> object_store::Error {
    match error {
        object_store::Error::Generic { source, .. }
            if ["403 Forbidden", "AccessDenied"].iter().any(|said| source.to_string().contains(said)) =>
        {
            object_store::Error::PermissionDenied { path: String::new(), source }
        }
        object_store::Error::Generic { source, .. } if source.to_string().contains("NoSuchBucket") => {
            object_store::Error::NotFound { path: String::new(), source: Box::new(NoBucket(source)) }
        }
        other => other,
    }
}

/// An object that is to be written cannot be missing; its bucket can.
fn of_write(error: object_store::Error) -> object_store::Error {
    match error {
        object_store::Error::NotFound { path, source } => {
            object_store::Error::NotFound { path, source: Box::new(NoBucket(source)) }
        }
        other => of_list(other),
    }
}

#[async_trait]
impl Store for Cloud {}

#[async_trait]
impl ObjectStore for Cloud {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        self.inner.put_opts(path, payload, options).await.map_err(of_write)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await.map_err(of_write)
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, StoreResult<Path>>) -> BoxStream<'static, StoreResult<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.inner.list(prefix).map(|listed| listed.map_err(of_list)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await.map_err(of_list)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(all(test, feature = "s3"))]
mod tests {
    use super::*;
    use crate::store::Stores;

    #[test]
    fn plain_http_leaves_this_machine_only_if_allowed() {
        for (endpoint, allow, opened) in [
            ("http://127.0.0.1:9000", "false", true),
            ("http://localhost:9000", "false", true),
            ("http://[::1]:9000", "false", true),
            ("https://minio.example.com", "false", true),
            ("http://minio.example.com", "true", true),
            ("http://minio.example.com", "1", true),
            ("HTTP://minio.example.com", "false", false),
            ("http://minio.example.com", "false", false),
            ("http://127.0.0.1.example.com", "false", false),
        ] {
            let mut stores = Stores::default();
            stores.set("AWS_ENDPOINT_URL", endpoint).unwrap();
            stores.set("AWS_ALLOW_HTTP", allow).unwrap();
            let answer = stores.open("s3://bucket/t");
            assert_eq!(answer.is_ok(), opened, "{endpoint}: {answer:?}");
        }
    }

    #[test]
    fn what_the_client_cannot_send_is_refused_at_once_and_not_repeated() {
        for (name, value) in [
            ("AWS_ENDPOINT_URL", ""),
            ("AWS_ENDPOINT_URL", "127.0.0.1:9000"),
            ("AWS_ENDPOINT_URL", "hunter2"),
            ("AWS_ENDPOINT_URL", "ftp://hunter2"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000 "),
            ("AWS_ENDPOINT_URL", "https://user:hunter2@minio.example.com"),
            ("AWS_ENDPOINT_URL", "https://minio.example.com?token=hunter2"),
            ("AWS_ACCESS_KEY_ID", "hunter2\n"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2\r\n"),
            ("AWS_SESSION_TOKEN", "hunter2\n"),
            ("AWS_REGION", "eu west"),
            ("AWS_ALLOW_HTTP", "hunter2"),
        ] {
            let mut stores = Stores::default();
            stores.set(name, value).unwrap();
            let error = stores.open("s3://bucket/t").expect_err(value);
            assert_eq!((error.code(), error.exit_code()), (code::INVALID_OPTION, 78), "{name}={value:?}: {error}");
            assert!(!format!("{error} {error:?} {}", error.report()).contains("hunter2"), "{error:?}");
        }
        for bucket in ["s3://b u/x", "s3:// /x", "s3://b\u{fc}cket/x"] {
            assert_eq!(Stores::default().open(bucket).expect_err(bucket).code(), code::INVALID_OPTION);
        }
    }

    #[test]
    fn keys_are_not_printed_and_unknown_options_are_refused() {
        let mut stores = Stores::default();
        stores.set("aws_secret_access_key", "hunter2").unwrap();
        stores.set("aws_access_key_id", "hunter2").unwrap();
        let location = stores.open("s3://bucket/t").unwrap();
        assert!(!format!("{location:?} {stores:?} {}", location.store).contains("hunter2"));
        stores.set("aws_acess_key_id", "hunter2").unwrap();
        let error = stores.open("s3://bucket/t").expect_err("misspelt");
        assert_eq!(error.code(), code::UNKNOWN_OPTION);
    }
}
