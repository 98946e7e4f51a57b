use std::io::Read;

use flate2::read::GzDecoder;

use super::*;

/// A program that can be put into an image, and nothing else.
fn program(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut header = vec![0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = if elf::machine() == "amd64" { 62 } else { 183 };
    let path = dir.join("server");
    fs::write(&path, header)?;
    Ok(path)
}

fn packed(layout: &Layout) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    layout.write(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn the_same_input_gives_the_same_bytes_wherever_and_whenever() -> anyhow::Result<()> {
    let (one, other) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let build = |dir: &Path| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "first")?;
        fs::write(&b, "second")?;
        let image = Image::new("server:v1", program(dir)?)?.file(b, "/etc/server/b")?.file(a, "/etc/server/a")?;
        image.compressed().build()
    };
    let first = build(one.path())?;
    // As far apart as files can be: another directory, another order, another time.
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    let again = other.path();
    fs::File::create(again.join("server"))?.set_modified(old)?;
    let second = build(again)?;
    assert_eq!(first.digest(), second.digest());
    assert_eq!(packed(&first)?, packed(&second)?);
    assert_eq!(first.reference(), "docker.io/library/server:v1");

    fs::write(one.path().join("server"), fs::read(one.path().join("server"))?.repeat(2))?;
    let changed = Image::new("server:v1", one.path().join("server"))?.build()?;
    assert_ne!(changed.digest(), first.digest());
    Ok(())
}

#[test]
fn an_image_survives_a_tar_and_a_directory_and_can_be_renamed() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let layout = Image::new("server:v1", program(dir.path())?)?.build()?;
    let tar = dir.path().join("server.tar");
    fs::write(&tar, packed(&layout)?)?;
    assert_eq!(packed(&Layout::read(&tar, None)?)?, packed(&layout)?);

    let unpacked = dir.path().join("layout");
    tar::Archive::new(fs::File::open(&tar)?).unpack(&unpacked)?;
    let renamed = Layout::read(&unpacked, Some("registry.example:5000/team/server:v2"))?;
    assert_eq!(renamed.reference(), "registry.example:5000/team/server:v2");
    assert_eq!(renamed.digest(), layout.digest(), "the name is no part of the image");
    Ok(())
}

/// The header of an entry of a tar.
type Entry = (String, tar::EntryType, u32, Option<String>);

/// The layers of an image, the lowest first, as whoever unpacks them meets them.
fn layers(layout: &Layout) -> anyhow::Result<Vec<Vec<Entry>>> {
    let mut layers = Vec::new();
    for (media_type, blob) in layout.layers()? {
        let mut plain = Vec::new();
        if media_type.ends_with("+gzip") {
            GzDecoder::new(blob).read_to_end(&mut plain)?;
        } else {
            plain.extend(blob);
        }
        let mut entries = Vec::new();
        for entry in tar::Archive::new(plain.as_slice()).entries()? {
            let entry = entry?;
            let link = entry.link_name()?.map(|link| link.display().to_string());
            let place = entry.path()?.display().to_string();
            entries.push((place, entry.header().entry_type(), entry.header().mode()?, link));
        }
        layers.push(entries);
    }
    Ok(layers)
}

#[test]
fn the_program_is_a_layer_of_its_own_and_a_file_at_two_places_is_there_once() -> anyhow::Result<()> {
    use tar::EntryType::{Directory, Link, Regular};
    let dir = tempfile::tempdir()?;
    let plugin = dir.path().join("plugin");
    fs::write(&plugin, "plugin")?;
    let image = Image::new("server:v1", program(dir.path())?)?
        .file(&plugin, "/opt/b/plugin")?
        .file(&plugin, "/opt/a/plugin")?
        .text("key = 1", "/etc/server.conf")?;
    let entry = |place: &str, kind, mode, link: Option<&str>| (place.to_owned(), kind, mode, link.map(str::to_owned));
    let below = vec![
        entry("etc", Directory, 0o755, None),
        entry("etc/passwd", Regular, 0o644, None),
        entry("etc/server.conf", Regular, 0o644, None),
        entry("opt", Directory, 0o755, None),
        entry("opt/a", Directory, 0o755, None),
        entry("opt/a/plugin", Regular, 0o644, None),
        entry("opt/b", Directory, 0o755, None),
        entry("opt/b/plugin", Link, 0o644, Some("opt/a/plugin")),
        entry("tmp", Directory, 0o1777, None),
    ];
    let above = vec![entry("server", Regular, 0o755, None)];
    assert_eq!(layers(&image.build()?)?, [below.clone(), above.clone()]);
    assert_eq!(layers(&image.clone().compressed().build()?)?, [below, above]);

    // A new program leaves the layer below as it is.
    let before = image.build()?;
    fs::write(dir.path().join("server"), fs::read(dir.path().join("server"))?.repeat(2))?;
    let after = image.build()?;
    assert_eq!(before.layers()?[0], after.layers()?[0]);
    assert_ne!(before.layers()?[1], after.layers()?[1]);
    Ok(())
}

#[test]
fn the_environment_is_what_was_set_and_a_path() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let image = Image::new("server:v1", program(dir.path())?)?;
    assert_eq!(image.build()?.config()?["config"]["Env"], json!(["PATH=/"]));
    let image = image.env("PATH", "/usr/local/bin:/").env("A", "b");
    assert_eq!(image.build()?.config()?["config"]["Env"], json!(["A=b", "PATH=/usr/local/bin:/"]));
    Ok(())
}

#[test]
fn a_program_is_where_it_is_put_and_is_called_as_it_is_asked_to() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let image = Image::new("server:v1", program(dir.path())?)?;
    let built = image.build()?.config()?;
    assert_eq!(built["config"]["Entrypoint"], json!(["/server"]));
    assert_eq!(built["config"]["User"], "65532:65532", "it has no rights unless it is given some");

    let image = image.at("/opt/server/bin/serve")?.arguments(&["run"]).user(0).text("", "/opt/server/conf")?.build()?;
    let built = image.config()?;
    assert_eq!(built["config"]["Entrypoint"], json!(["/opt/server/bin/serve", "run"]));
    assert_eq!(built["config"]["User"], "0:0");
    let of_program = layers(&image)?.pop().unwrap_or_default();
    let places: Vec<String> = of_program.into_iter().map(|(place, ..)| place).collect();
    assert_eq!(places, ["opt", "opt/server", "opt/server/bin", "opt/server/bin/serve"]);
    Ok(())
}

#[test]
fn nothing_takes_the_place_of_the_program_or_of_a_directory() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    for (places, refusal) in [
        (["/server", "/x"], "/server in the image is the program itself"),
        (["/server/x", "/y"], "/server in the image is the program itself"),
        (["/etc", "/x"], "/etc cannot be a file and a directory"),
        (["/opt/x", "/opt/x/y"], "/opt/x cannot be a file and a directory"),
    ] {
        let image = Image::new("server:v1", program(dir.path())?)?.text("", places[0])?.text("", places[1])?;
        let refused = image.build().expect_err("two things at one place").to_string();
        assert!(refused.contains(refusal), "{refused}");
    }
    let image = Image::new("server:v1", program(dir.path())?)?.at("/opt/server")?.text("", "/opt")?;
    let refused = image.build().expect_err("its directory is a file").to_string();
    assert!(refused.contains("/opt/server in the image is the program itself"), "{refused}");
    assert!(Image::new("server:v1", "server")?.at("opt/server").is_err(), "that is no absolute path");
    Ok(())
}

#[test]
fn an_image_for_another_machine_is_refused() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let layout = Image::new("server:v1", program(dir.path())?)?.build()?;
    let unpacked = dir.path().join("layout");
    tar::Archive::new(packed(&layout)?.as_slice()).unpack(&unpacked)?;
    for entry in fs::read_dir(unpacked.join("blobs/sha256"))? {
        let path = entry?.path();
        let text = String::from_utf8_lossy(&fs::read(&path)?).replace(elf::machine(), "s390x");
        if text.contains("s390x") {
            fs::write(&path, text)?;
        }
    }
    let refused = Layout::read(&unpacked, None).expect_err("another architecture").to_string();
    assert!(refused.contains("is built for s390x, and this machine is"), "{refused}");
    Ok(())
}

#[test]
fn what_is_no_image_is_called_that() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let refused = Layout::read(dir.path(), None).expect_err("it is empty").to_string();
    assert!(refused.contains("is not an OCI image layout"), "{refused}");
    for name in ["server", "Server:v1", "a//b:v1", "registry:5000/server", ":v1", "server:"] {
        assert!(Image::new(name, "server").is_err(), "{name}");
    }
    for place in ["etc/x", "/", "/etc/../x", "/etc/", "//x"] {
        assert!(Image::new("server:v1", "server")?.file("x", place).is_err(), "{place}");
    }
    Ok(())
}
