//! Files that later runs obey, left by scripts in a sandbox of this machine: the same for every provider that shows the
//! working directory itself.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fabro_sandbox::{Captured, ExecError, Finished};

use crate::conformance::{Ground, until};

fn stderr(finished: Finished) -> String {
    let Captured::Text(text) = finished.stderr else { panic!("large output") };
    text
}

/// A script removes permissions that the check of the directory needs. Root is not held up by them.
async fn a_directory_without_permissions_is_checked(ground: Ground) {
    for mode in ["0311", "0555", "0000"] {
        let script = format!(
            "mkdir -p low/.fabro; echo x > low/AGENTS.md; chmod {mode} low; echo x > fabro.toml; chmod {mode} ."
        );
        let lines = stderr(ground.run(&script).await);
        assert_eq!(lines.lines().count(), 3, "{mode}: {lines}");
        for name in ["work/low/AGENTS.md", "work/low/.fabro", "work/fabro.toml"] {
            assert!(!ground.path(name).exists(), "{mode}: {name}");
        }
        for name in ["work", "work/low"] {
            std::fs::set_permissions(ground.path(name), Permissions::from_mode(0o755)).unwrap();
        }
        ground.run("rm -r low *.from-sandbox*").await;
    }
}

/// Its file is there when the second script starts.
async fn a_script_at_the_same_time_takes_no_new_file_for_an_old_one(ground: Ground) {
    let work = ground.path("work");
    let has = |name: &str| work.join(name).exists();
    let first = ground.try_run_by(
        &*ground.exec,
        "echo x > fabro.toml; until test -e go; do sleep 0.05; done; echo first",
    );
    let second = async {
        until("the file is there", || has("fabro.toml")).await;
        let script = "touch go; while test -e fabro.toml; do sleep 0.05; done; echo x > fabro.toml";
        ground.try_run_by(&*ground.exec, script).await
    };
    let (first, second) = tokio::join!(first, second);
    let renamed = |finished: Result<Finished, ExecError>| {
        let Captured::Text(text) = finished.unwrap().stdout else { panic!("large output") };
        text.contains("later runs would obey fabro.toml")
    };
    assert!(renamed(first) && renamed(second));
    assert!(!has("fabro.toml"));
}

/// The next script is checked by the files from before the one that could not be checked.
async fn a_file_that_cannot_be_renamed_fails_the_script(ground: Ground) {
    // Its new name would be too long.
    let name = format!("{}.fabro", "x".repeat(248));
    let error = ground.try_run(&format!("echo x > {name}")).await.unwrap_err();
    assert!(matches!(error, ExecError::Unguarded { .. }), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
    let check = || ground.sandbox().check_again(&ground.path("work"));
    assert!(matches!(check(), Err(ExecError::Unguarded { .. })));
    let lines = stderr(ground.run(&format!("mv {name} fabro.toml")).await);
    assert!(lines.contains("later runs would obey fabro.toml"), "{lines}");
    assert_eq!(check().unwrap(), "");
}

/// Git would run the programs that its configuration names.
#[tokio::test]
async fn a_new_repository_in_the_working_directory_is_renamed() {
    let Some(ground) = Ground::bwrap() else { return };
    std::fs::remove_dir_all(ground.path("work/.git")).unwrap();
    let lines = stderr(ground.run("mkdir -p .git sub/.git; echo x > .git/config").await);
    assert!(lines.contains("git would obey .git"), "{lines}");
    assert!(!ground.path("work/.git").exists() && ground.path("work/sub/.git").exists());
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = dir.read_dir().unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("control-files")).collect()
}

/// The record is there from before the script starts, and outlives this process.
async fn the_next_driver_renames_what_a_killed_one_has_left(ground: Ground) {
    let state = ground.path("store/runs/1/sandbox");
    let script = "echo x > fabro.toml; echo up; until test -e go; do sleep 0.05; done";
    let (finished, ()) = tokio::join!(ground.run(script), async {
        ground.printed("up").await;
        assert_eq!(names_in(&state).len(), 1);
        let renamed = fabro_sandbox::rename_left_control_files(&state).unwrap();
        assert!(renamed.contains("later runs would obey fabro.toml"), "{renamed}");
        assert_eq!(fabro_sandbox::rename_left_control_files(&state).unwrap(), "");
        std::fs::write(ground.path("work/go"), "").unwrap();
    });
    assert_eq!(stderr(finished), "");
    ground.run("true").await;
    assert!(names_in(&state).is_empty());
}

macro_rules! for_all {
    ($($provider:ident $ground:expr;)*) => {$(
        for_one! { $provider $ground;
            a_directory_without_permissions_is_checked
            a_script_at_the_same_time_takes_no_new_file_for_an_old_one
            a_file_that_cannot_be_renamed_fails_the_script
            the_next_driver_renames_what_a_killed_one_has_left
        }
    )*};
}

macro_rules! for_one {
    ($provider:ident $ground:expr; $($test:ident)*) => {
        mod $provider {
            use crate::conformance::Ground;

            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(ground) = $ground {
                        super::$test(ground).await;
                    }
                }
            )*
        }
    };
}

for_all! {
    bwrap Ground::bwrap();
    docker Ground::docker().await;
}
