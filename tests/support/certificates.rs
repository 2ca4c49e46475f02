//! Certificates for a broker with TLS: a certificate authority of our own, made anew for each test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate authority, in a folder.
pub struct Authority {
    dir: PathBuf,
}

impl Authority {
    /// Makes one, in a new folder.
    pub fn new(dir: impl Into<PathBuf>) -> Authority {
        let authority = Authority { dir: dir.into() };
        std::fs::create_dir_all(&authority.dir).expect("a folder");
        let (key, certificate) = (authority.at("ca.key"), authority.at("ca.pem"));
        let new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tidemill-test-ca"];
        openssl(&[&new[..], &["-keyout", text(&key), "-out", text(&certificate)]].concat());
        authority
    }

    /// The authority's own certificate, in PEM.
    pub fn certificate(&self) -> PathBuf {
        self.at("ca.pem")
    }

    /// Makes a key and a certificate for `name`, which is valid for `address` (such as `IP:127.0.0.1`): the certificate, and
    /// the key.
    pub fn issue(&self, name: &str, address: &str) -> (PathBuf, PathBuf) {
        let (request, key, certificate, extension) = (
            self.at(&format!("{name}.csr")),
            self.at(&format!("{name}.key")),
            self.at(&format!("{name}.pem")),
            self.at(&format!("{name}.ext")),
        );
        std::fs::write(&extension, format!("subjectAltName={address}\n")).expect("written");
        let subject = format!("/CN={name}");
        let new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", &subject];
        openssl(&[&new[..], &["-keyout", text(&key), "-out", text(&request)]].concat());
        let (ca, ca_key) = (self.certificate(), self.at("ca.key"));
        let sign = ["x509", "-req", "-days", "2", "-in", text(&request), "-CA", text(&ca), "-CAkey", text(&ca_key)];
        let out = ["-CAcreateserial", "-extfile", text(&extension), "-out", text(&certificate)];
        openssl(&[&sign[..], &out].concat());
        (certificate, key)
    }

    /// One file with the certificate and its key, as a broker takes it.
    pub fn keystore(&self, name: &str, address: &str) -> PathBuf {
        let (certificate, key) = self.issue(name, address);
        let both = [key, certificate].map(|path| std::fs::read_to_string(path).expect("it was made"));
        let store = self.at(&format!("{name}.store.pem"));
        std::fs::write(&store, both.concat()).expect("written");
        store
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test folders have plain names")
}

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
