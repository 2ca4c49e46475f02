//! Opening a location: which store its URL means, and what that store is told.
//!
//! | location | store | feature |
//! | --- | --- | --- |
//! | a path, `file://` | a local disk | |
//! | `s3://`, `s3a://` | Amazon S3 and what speaks like it | `s3` |
//! | `gs://` | Google Cloud Storage | `gcs` |
//! | `az://`, `abfs://`, `abfss://` | Azure Blob Storage | `azure` |
//! | `hdfs://` | Hadoop's file system | `hdfs` |
//!
//! What follows the host is taken as it stands, as Hadoop does: `%20` is three characters. A URL holds no credentials:
//! they come from the environment or from [`Stores::set`], and no file of ours ever contains them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounded::Bounded;
use super::{DurableLocal, Location, Path, Store};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result, code};
use crate::secret::Secret;

/// Opens locations.
#[derive(Clone, Debug)]
pub struct Stores {
    clock: Arc<dyn Clock>,
    /// What stores are told beside the environment. Any of it may be a secret.
    options: BTreeMap<String, Secret>,
    /// Stores of a test's own, by their whole URL.
    #[cfg(feature = "testing")]
    mounted: BTreeMap<String, Arc<dyn Store>>,
}

impl Default for Stores {
    fn default() -> Self {
        Stores::new(Arc::new(SystemClock::default()))
    }
}

/// How the names of options begin, and whose they are.
const FAMILIES: &[(&str, &str)] = &[
    ("aws_", "s3"),
    ("google_", "gs"),
    ("azure_", "az"),
    ("dfs.", "hdfs"),
    ("fs.", "hdfs"),
    ("hadoop.", "hdfs"),
    ("ipc.", "hdfs"),
];

impl Stores {
    /// Stores whose calls are bounded by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Stores {
            clock,
            options: BTreeMap::new(),
            #[cfg(feature = "testing")]
            mounted: BTreeMap::new(),
        }
    }

    /// Has this URL mean a store that is already there.
    #[cfg(feature = "testing")]
    pub fn mount(&mut self, url: impl Into<String>, store: Arc<dyn Store>) {
        self.mounted.insert(url.into(), store);
    }

    /// Sets what a store is told, over the environment: `aws_endpoint_url`, `google_service_account`,
    /// `azure_storage_account_name` under the names of their environment variables in any case, Hadoop's properties
    /// (`dfs.client.use.datanode.hostname`) under theirs.
    ///
    /// # Errors
    ///
    /// [`code::UNKNOWN_OPTION`] for a name that belongs to no store. Names of one store's family are checked when such
    /// a location is opened.
    pub fn set(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        let lower = name.to_lowercase();
        let Some((_, scheme)) = FAMILIES.iter().find(|(prefix, _)| lower.starts_with(prefix)) else {
            let families: Vec<&str> = FAMILIES.iter().map(|(prefix, _)| *prefix).collect();
            return Err(Error::new(code::UNKNOWN_OPTION, format!("no store has an option \"{name}\""))
                .fix(format!("names of stores' options begin with one of: {}", families.join(" "))));
        };
        // Hadoop tells upper from lower case, the others do not.
        let name = if *scheme == "hdfs" { name.to_owned() } else { lower };
        self.options.insert(name, Secret::new(value));
        Ok(())
    }

    /// Opens a location. A local folder that does not exist is made; elsewhere nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`code::UNKNOWN_LOCATION`] for a scheme that nobody knows or this build leaves out; [`code::INVALID_OPTION`] for a
    /// URL or options that cannot be used; [`code::STORE_REFUSED`] for a folder that cannot be made.
    pub fn open(&self, text: &str) -> Result<Location> {
        #[cfg(feature = "testing")]
        if let Some(store) = self.mounted.get(text) {
            let store = Bounded::new(Arc::clone(store), Arc::clone(&self.clock));
            return Ok(Location { store: Arc::new(store), url: text.to_owned() });
        }
        match Place::read(text)? {
            Place::Local(path) => {
                let local = DurableLocal::open(path).map_err(|error| {
                    Error::new(code::STORE_REFUSED, "the folder cannot be used")
                        .because(error)
                        .at("location", text)
                        .fix("name a folder that this user may make and write to")
                })?;
                let url = local.root().display().to_string();
                Ok(Location { store: Arc::new(local), url })
            }
            Place::Remote(remote) => {
                let store = self.open_remote(&remote).map_err(|error| error.at("location", remote.url()))?;
                Ok(Location { store: Arc::new(Bounded::new(store, Arc::clone(&self.clock))), url: remote.url() })
            }
        }
    }

    /// Opens a location that must be there already, as far as that can be told without asking: a local folder.
    pub fn open_existing(&self, text: &str) -> Result<Location> {
        if let Place::Local(path) = Place::read(text)?
            && !path.is_dir()
        {
            return Err(Error::new(code::UNKNOWN_LOCATION, "there is no such location").at("location", text));
        }
        self.open(text)
    }

    fn open_remote(&self, remote: &Remote<'_>) -> Result<Arc<dyn Store>> {
        match remote.scheme {
            #[cfg(feature = "s3")]
            "s3" | "s3a" => super::cloud::open_s3(remote, &self.of("s3")),
            #[cfg(feature = "gcs")]
            "gs" => super::cloud::open_gcs(remote, &self.of("gs")),
            #[cfg(feature = "azure")]
            "az" | "abfs" | "abfss" => super::cloud::open_azure(remote, &self.of("az")),
            #[cfg(feature = "hdfs")]
            "hdfs" => super::hdfs::open(remote, &self.of("hdfs"), Arc::clone(&self.clock)),
            scheme => Err(match feature_of(scheme) {
                Some(feature) => {
                    Error::new(code::UNKNOWN_LOCATION, format!("this build leaves out locations of \"{scheme}://\""))
                        .fix(format!("build with the feature \"{feature}\" of tidemill"))
                }
                None => Error::new(code::UNKNOWN_LOCATION, format!("locations of \"{scheme}://\" are not known"))
                    .fix("name a path, or a URL of file://, s3://, gs://, az:// or hdfs://"),
            }),
        }
    }

    /// The options of one scheme's stores.
    #[cfg_attr(not(any(feature = "s3", feature = "gcs", feature = "azure", feature = "hdfs")), expect(dead_code))]
    fn of(&self, scheme: &str) -> Vec<(&str, &Secret)> {
        let is_its = |name: &str| {
            let name = name.to_lowercase();
            FAMILIES.iter().any(|(prefix, of)| *of == scheme && name.starts_with(prefix))
        };
        self.options.iter().map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| is_its(name)).collect()
    }
}

/// The feature that a scheme needs.
fn feature_of(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "s3" | "s3a" => "s3",
        "gs" => "gcs",
        "az" | "abfs" | "abfss" => "azure",
        "hdfs" => "hdfs",
        _ => return None,
    })
}

/// What a location's text says.
enum Place<'a> {
    Local(&'a std::path::Path),
    Remote(Remote<'a>),
}

/// A URL of a store elsewhere.
pub(super) struct Remote<'a> {
    pub scheme: &'a str,
    /// The bucket or the container; the name node or name service.
    pub host: &'a str,
    /// What comes before all names.
    pub prefix: Path,
}

impl Remote<'_> {
    /// The whole, for people.
    pub fn url(&self) -> String {
        match self.prefix.as_ref() {
            "" => format!("{}://{}", self.scheme, self.host),
            prefix => format!("{}://{}/{prefix}", self.scheme, self.host),
        }
    }
}

impl<'a> Place<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let refuse = |what: String| Error::new(code::INVALID_OPTION, what).at("location", without_secrets(text));
        let Some((scheme, rest)) = text.split_once("://") else {
            // Hadoop prints `file:/path`; of a store elsewhere one slash names no host.
            return match text.split_once(":/") {
                Some(("file", _)) => Place::local(&text["file:".len()..]),
                Some((scheme, path)) if feature_of(scheme).is_some() => {
                    Err(refuse(format!("after \"{scheme}:\" a location has two slashes"))
                        .fix(format!("write {scheme}://{path}, or, for a folder of that name, ./{scheme}:/{path}")))
                }
                _ => Place::local(text),
            };
        };
        if scheme == "file" {
            // `file://localhost/path` is the long form of `file:///path`.
            return match rest.strip_prefix("localhost").unwrap_or(rest) {
                path if path.starts_with('/') => Place::local(path),
                "" => Place::local(""),
                _ => Err(refuse("after \"file://\" a location names a path of this machine".to_owned())
                    .fix(format!("write file:///{rest} for the path /{rest}, or, for a relative one, {rest}"))),
            };
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        // `abfss://container@account.…`, where the part before the `@` is no secret.
        if host.contains('@') && feature_of(scheme) != Some("azure") {
            return Err(refuse("a location holds no user and no password".to_owned())
                .fix("give credentials by the environment or as options of the session"));
        }
        if host.contains(['?', '#']) || path.contains(['?', '#']) {
            return Err(refuse("a location has no query and no fragment".to_owned())
                .fix("leave out what follows \"?\" or \"#\""));
        }
        if host.is_empty() && scheme != "hdfs" {
            return Err(
                refuse("the location names no bucket".to_owned()).fix(format!("write {scheme}://bucket/folder"))
            );
        }
        let prefix = Path::parse(path.trim_end_matches('/'))
            .map_err(|error| refuse(format!("\"{path}\" is no path of a store")).because(error))?;
        Ok(Place::Remote(Remote { scheme, host, prefix }))
    }

    fn local(path: &'a str) -> Result<Self> {
        match path {
            "" => Err(Error::new(code::INVALID_OPTION, "the location is empty").fix("name a folder")),
            path => Ok(Place::Local(std::path::Path::new(path))),
        }
    }
}

/// A location without what may be a password or a signature.
fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{}", path.map(|path| format!("/{path}")).unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read() {
        for (text, url) in [
            ("s3://bucket", "s3://bucket"),
            ("s3a://bucket/", "s3a://bucket"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("s3://bucket/a%20b/é", "s3://bucket/a%20b/é"),
            ("hdfs://namenode:8020/checkpoints/sensors", "hdfs://namenode:8020/checkpoints/sensors"),
            ("hdfs:///checkpoints", "hdfs:///checkpoints"),
            ("abfss://container@account.dfs.core.windows.net/t", "abfss://container@account.dfs.core.windows.net/t"),
        ] {
            let Place::Remote(remote) = Place::read(text).unwrap() else { panic!("{text} is not local") };
            assert_eq!(remote.url(), url);
        }
        for (text, path) in
            [("/a b", "/a b"), ("file:///a%20b", "/a%20b"), ("file:/a", "/a"), ("file://localhost/a", "/a"), ("t", "t")]
        {
            let Place::Local(local) = Place::read(text).unwrap() else { panic!("{text} is local") };
            assert_eq!(local, std::path::Path::new(path));
        }
    }

    #[test]
    fn what_cannot_be_a_location_is_refused_without_repeating_secrets() {
        for (text, refused) in [
            ("", code::INVALID_OPTION),
            ("file://", code::INVALID_OPTION),
            ("file://tmp/c", code::INVALID_OPTION),
            ("file://localhosts/tmp/c", code::INVALID_OPTION),
            ("s3://", code::INVALID_OPTION),
            ("s3:///path", code::INVALID_OPTION),
            ("s3://key:hunter2@bucket/t", code::INVALID_OPTION),
            ("hdfs://user:hunter2@namenode/t", code::INVALID_OPTION),
            ("s3://bucket/t?X-Amz-Signature=hunter2", code::INVALID_OPTION),
            ("s3://bucket/t#hunter2", code::INVALID_OPTION),
            ("s3://bucket/a//b", code::INVALID_OPTION),
            ("s3://bucket/../t", code::INVALID_OPTION),
            ("hdfs:/t", code::INVALID_OPTION),
            ("s3:/bucket/t", code::INVALID_OPTION),
            ("ftp://host/t", code::UNKNOWN_LOCATION),
            ("S3://bucket/t", code::UNKNOWN_LOCATION),
        ] {
            let error = Stores::default().open(text).expect_err(text);
            assert_eq!(error.code(), refused, "{text}: {error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn options_belong_to_a_store() {
        let mut stores = Stores::default();
        stores.set("AWS_ENDPOINT_URL", "http://127.0.0.1:1").unwrap();
        stores.set("dfs.client.use.datanode.hostname", "true").unwrap();
        let error = stores.set("endpoint", "x").expect_err("no store's");
        assert_eq!(error.code(), code::UNKNOWN_OPTION);
        assert_eq!(stores.of("s3").iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["aws_endpoint_url"]);
        assert_eq!(stores.of("hdfs").len(), 1);
        assert!(!format!("{stores:?}").contains("127.0.0.1"));
    }

    #[test]
    #[cfg(not(feature = "gcs"))]
    fn a_store_that_is_left_out_names_its_feature() {
        let error = Stores::default().open("gs://bucket/t").expect_err("left out");
        assert_eq!(error.code(), code::UNKNOWN_LOCATION);
        assert!(error.to_string().contains("the feature \"gcs\""), "{error}");
    }
}
