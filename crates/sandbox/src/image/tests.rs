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
        Image::new("server:v1", program(dir)?)?.file(b, "/etc/server/b")?.file(a, "/etc/server/a")?.build()
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
    assert!(refused.contains("is no OCI image layout"), "{refused}");
    for name in ["server", "Server:v1", "a//b:v1", "registry:5000/server", ":v1", "server:"] {
        assert!(Image::new(name, "server").is_err(), "{name}");
    }
    for place in ["etc/x", "/", "/etc/../x", "/etc/", "//x"] {
        assert!(Image::new("server:v1", "server")?.file("x", place).is_err(), "{place}");
    }
    Ok(())
}
