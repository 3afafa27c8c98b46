"""Seeded bugs of keys, ledgers, accounts and processes: what a run remembers."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["STATE"]

SURVEYED = "tests/run/test_surveyed.py"

STATE = (
    Mutant(
        "the hash of a prepared query stands for another query",
        (("release/releaser.py", "if begun is not None and known is query:", "if begun is not None:"),),
        ("tests/release/test_release.py::test_another_query_than_the_prepared_one_is_told_apart",),
    ),
    Mutant(
        "a refused call keeps the lock of its checkpoint",
        (("run/run.py", "refused.callback(self._resources.close)", "pass"),),
        ("tests/run/test_honest_reports.py::test_a_refused_call_keeps_no_lock_while_its_error_lives",),
    ),
    Mutant(
        "the parameters of a run are read with other classes",
        (("cli/fit.py", "form=_form(labels, columns, args.feature_norm, block)", "form=None"),),
        ("tests/cli/test_fit.py::test_a_complete_run_is_not_read_with_other_classes_or_ranges",),
    ),
    Mutant(
        "released values of another run of the plan are given back",
        (("release/ledger.py", "canonical([self.run_id, self._digest, step])", "canonical([self._digest, step])"),),
        (
            "tests/release/test_ledger_damage.py::"
            "test_what_another_run_of_the_plan_released_is_not_given_back_under_this_name[released.bin]",
        ),
    ),
    Mutant(
        "the cap of a file's rows is not kept with the run",
        (("run/train.py", "capped_facts(facts, stream.cap)", "capped_facts(facts, None)"),),
        ("tests/run/test_honest_reports.py::test_rows_of_a_file_state_their_cap_by_themselves",),
    ),
    Mutant(
        "a fork does what its parent has to do beside a round",
        (("parallel.py", "return task if self._process == os.getpid() else None", "return task"),),
        ("tests/faults/test_forks_beside_threads.py::test_a_fork_does_not_do_what_its_parent_has_to_do",),
    ),
    Mutant(
        "tasks that wait for workers which wait for them",
        (("parallel.py", 'if threads == 1 or getattr(_HERE, "works", False):', "if threads == 1:"),),
        ("tests/test_parallel.py::test_a_task_that_has_tasks_of_its_own_runs_them_by_itself",),
    ),
    Mutant(
        "a fork takes rows of a live run",
        (
            (
                "run/run.py",
                "stage.ledger.check_process()  # before a row is read",
                "pass  # before a row is read",
            ),
        ),
        (
            "tests/release/test_processes.py::test_a_child_that_goes_on_with_a_training_is_refused_before_it_reads_a_row",
        ),
    ),
    Mutant(
        "a fork removes the file that its parent is writing",
        (("json_files.py", "if before == after == os.getpid():", "if after == os.getpid():"),),
        ("tests/faults/test_forks_while_writing.py::test_a_child_forked_while_a_file_is_written_writes_none[True]",),
    ),
    Mutant(
        "a release before the check of the rows has ended",
        (("run/train.py", "            stream.confirm()  # the release of this round comes next\n", ""),),
        (
            "tests/estimators/test_check_beside.py::"
            "test_a_row_that_does_not_fit_stops_the_run_before_anything_is_released[auto]",
        ),
    ),
    Mutant(
        "an account is charged before the check of the rows has ended",
        (("run/train.py", "        if account is not None:\n            stream.confirm()\n", ""),),
        ("tests/estimators/test_check_beside.py::test_an_account_is_charged_after_the_check",),
    ),
    Mutant(
        "rows of a large table that kernels count as unfit are not looked at",
        (("rows/stream.py", "        if not zero_rows:\n", "        if True:\n"),),
        (
            "tests/rows/test_first_round_check.py::"
            "test_a_row_of_the_first_round_that_does_not_fit_is_refused_before_a_release[X-nan-float32]",
        ),
    ),
    Mutant(
        "any oracle is believed to count the rows that do not fit",
        (("run/train.py", "counts_unfit = type(oracle) is CompiledOracle and", "counts_unfit = True or"),),
        ("tests/rows/test_first_round_check.py::test_an_oracle_of_the_caller_is_not_believed",),
    ),
    Mutant(
        "noise that was drawn for another round",
        (("release/releaser.py", "drawn.noise[step - drawn.next]", "drawn.noise[-1]"),),
        ("tests/release/test_release.py::test_noise_does_not_depend_on_how_many_rounds_are_drawn_together[sqrt]",),
    ),
    Mutant(
        "two passes at a time through one module",
        (
            (
                "clipping/torch/oracle.py",
                "            with _MODEL_CODE.lock:\n                formed",
                "            if True:\n                formed",
            ),
        ),
        ("tests/clipping/torch/test_isolation.py::test_threads_that_share_an_oracle_get_the_sums_of_their_own_rows",),
    ),
    Mutant(
        "a query shows an iterate that its method may not show",
        (("run/run.py", 'raise HorizonError(f"{self._last_alone} A query holds an iterate.")', "pass"),),
        ("tests/methods/test_refusals.py::test_snowball_shows_nothing_before_its_last_iterate",),
    ),
    Mutant(
        "a lock on a file that was replaced",
        (("held_files.py", "if os.path.samestat(os.fstat(self.descriptor), _stat(self._place)):", "if True:"),),
        (
            "tests/accounting/test_account_files.py::test_a_charge_waits_for_the_file_that_replaced_the_one_it_waited_for",
        ),
    ),
    Mutant(
        "the fingerprint check removed",
        (("release/releaser.py", "elif not hmac.compare_digest(recorded, fingerprint):", "elif False:"),),
        ("tests/release/test_release.py::test_another_sum_for_a_released_round_is_refused",),
    ),
    Mutant(
        "the same batch released for another query under one key",
        (("release/releaser.py", '"fingerprint", query.digest(points)', '"fingerprint", b""'),),
        ("tests/release/test_release.py::test_another_query_for_a_released_round_is_refused",),
    ),
    Mutant(
        "the key left in a saved model",
        (
            (
                "release/ledger.py",
                "super().__init__(secrets.token_hex(16), key, [], process)",
                "super().__init__(key.hex(), key, [], process)",
            ),
        ),
        ("tests/release/test_release_secrets.py::test_no_key_or_noise_is_reachable_from_a_result",),
    ),
    Mutant(
        "a fork between the key and its ledger owns the run too",
        (("release/ledger.py", "os.getpid() if process is None else process", "os.getpid()"),),
        ("tests/run/test_forks_while_a_run_begins.py::test_two_processes_never_have_the_noise_of_one_key",),
    ),
    Mutant(
        "an account that is moved during a charge comes back under its old name",
        (("json_files.py", "    if held.replaced() or _hidden(held, folder):", "    if True:"),),
        (
            "tests/accounting/test_account_files.py::test_an_account_that_is_moved_or_linked_during_a_charge_is_still_one_account",
        ),
    ),
    Mutant(
        "a fork that replaces files of its parent's checkpoint",
        (("json_files.py", "    if os.getpid() != process:\n", "    if False:\n"),),
        ("tests/faults/test_forks_while_writing.py::test_a_child_forked_while_a_file_is_written_writes_none",),
    ),
    Mutant(
        "the key left on disk after the last round",
        (
            (
                "release/ledger.py",
                "        self._key = None\n        self._keep(self._fingerprints)\n",
                "        self._keep(self._fingerprints)\n        self._key = None\n",
            ),
        ),
        (
            "tests/release/test_ledger_files.py::test_the_secret_is_readable_by_its_owner_only_and_the_key_is_erased_at_the_end",
        ),
    ),
    Mutant(
        "the secret readable by everybody",
        (
            (
                "release/ledger.py",
                'write_sealed(self.folder / "secret.json", secret, mode=0o600)',
                'write_sealed(self.folder / "secret.json", secret)',
            ),
        ),
        (
            "tests/release/test_ledger_files.py::test_the_secret_is_readable_by_its_owner_only_and_the_key_is_erased_at_the_end",
        ),
    ),
    Mutant(
        "a stream that opens twice",
        (("rows/one_pass.py", "if not self._unopened.acquire(blocking=False):", "if False:"),),
        ("tests/rows/test_stream.py::test_a_second_pass_is_refused",),
    ),
    Mutant(
        "an account forgets what float64 noise loses",
        (("accounting/account.py", "max(FLOAT_SHARE, share * (1 + 1e-12))", "FLOAT_SHARE"),),
        ("tests/accounting/test_account.py::test_what_float64_noise_loses_is_paid_at_the_epsilon_of_the_limit",),
    ),
    Mutant(
        "the geometry of a run that is not private is called private",
        (("run/result.py", "private=self.report.private)", "private=True)"),),
        ("tests/run/test_in_geometry.py::test_a_geometry_is_as_private_as_the_run_that_released_it",),
    ),
    Mutant(
        "an account that is never empty",
        (
            (
                "accounting/account.py",
                "if total > gaussian.mu_of(self.limit.epsilon, delta) * (1 + 1e-12):",
                "if False:",
            ),
        ),
        ("tests/accounting/test_account.py::test_an_account_is_exact_on_equal_runs",),
    ),
    Mutant(
        "keys from numpy's global state",
        (("release/noise.py", "return secrets.token_bytes(KEY_BYTES)", "return np.random.bytes(KEY_BYTES)"),),
        ("tests/run/test_train.py::test_numpys_global_state_is_neither_read_nor_written",),
    ),
    Mutant(
        "a cipher shared by a draw and the draw inside it",
        (("release/noise.py", "return self._unused[segment].pop()", "return self._unused[segment][-1]"),),
        ("tests/release/test_noise.py::test_a_draw_inside_a_draw_changes_neither",),
    ),
    Mutant(
        "keys of 31 bits",
        (
            (
                "release/noise.py",
                "return secrets.token_bytes(KEY_BYTES)",
                "return secrets.randbits(31).to_bytes(KEY_BYTES, 'little')",
            ),
        ),
        ("tests/release/test_noise.py::test_keys_are_256_fresh_bits",),
    ),
    Mutant(
        "a checkpoint read without its checksum",
        (("json_files.py", "    if not intact:\n", "    if False:\n"),),
        ("tests/accounting/test_account_files.py::test_any_changed_byte_of_the_account_is_noticed",),
    ),
    Mutant(
        "the key reused by another plan",
        (("run/stage.py", '"run", digest)', '"run")'),),
        ("tests/release/test_release_secrets.py::test_the_same_key_gives_unrelated_noise_to_another_plan_or_start",),
    ),
    Mutant(
        "a forked child keeps the run",
        (
            ("release/ledger.py", "self._copied, self._key = self._copied or self._key is not None, None", "pass"),
            (
                "release/ledger.py",
                "if self._copied or (self._process != os.getpid() and",
                "if self._copied or (False and",
            ),
        ),
        (
            "tests/release/test_processes.py::test_two_children_of_a_live_run_release_nothing_and_the_parent_goes_on",
            "tests/release/test_processes.py::test_partial_fit_goes_on_in_the_process_that_began_it_only",
        ),
    ),
    Mutant(
        "a fork that Python is not told of keeps the key",
        (
            (
                "release/ledger.py",
                "if self._copied or (self._process != os.getpid() and",
                "if self._copied or (False and",
            ),
        ),
        ("tests/run/test_honest_reports.py::test_a_fork_that_python_is_not_told_of_releases_nothing",),
    ),
    Mutant(
        "a watched run is resumed as a private one",
        (("run/stage.py", '"seeded": seeded, "watched": watched}', '"seeded": seeded}'),),
        ("tests/run/test_honest_reports.py::test_a_watched_run_stays_not_private_when_it_is_resumed",),
    ),
    Mutant(
        "the rounds behind a survey begin again with a known key",
        (
            ("run/stage.py", 'for name in ("run.json", "secret.json")', 'for name in ("run.json",)'),
            ("run/stage.py", "master = new_key() if survey.restored", "master = bytes(32) if survey.restored"),
        ),
        ("tests/run/test_surveyed_checkpoints.py::test_a_checkpoint_that_lost_the_key_of_its_rounds_is_refused",),
    ),
    Mutant(
        "the key of a survey ends with it, so that a resumed run never compares its rows",
        (
            (
                "run/run.py",
                "            self._survey, (self._second, self._stage) = survey, self._later",
                "            survey.releaser.close()\n"
                "            self._survey, (self._second, self._stage) = survey, self._later",
            ),
            ("run/stage.py", "    if survey.restored and not ledger.complete:", "    if False:"),
        ),
        ("tests/run/test_surveyed_checkpoints.py::test_other_rows_or_another_order_behind_a_survey_are_refused[1]",),
    ),
    Mutant(
        "a stream keeps views of a buffer that its source fills again",
        (("rows/chunk_stream.py", "        if self._trusted:", "        if True:"),),
        ("tests/rows/test_reused_buffers.py::test_a_stream_of_one_buffer_is_the_stream_of_its_rows[full-False]",),
    ),
    Mutant(
        "each link to an account is an account",
        (
            (
                "accounting/account.py",
                'object.__setattr__(self, "path", Path(self.path).resolve())',
                'object.__setattr__(self, "path", Path(self.path).absolute())',
            ),
        ),
        ("tests/accounting/test_account_files.py::test_symbolic_links_to_an_account_are_one_account",),
    ),
    Mutant(
        "charges do not wait for each other",
        (("accounting/account.py", "wait=PATIENCE", "wait=0.0"),),
        ("tests/accounting/test_account_files.py::test_a_charge_waits_for_the_one_before_it",),
    ),
    Mutant(
        "the rounds behind a survey are where the path of its folder leads",
        (
            (
                "run/stage.py",
                'None if home is None else home / "rounds"',
                'None if home is None else f"{home.name}/rounds"',
            ),
        ),
        (
            "tests/run/test_surveyed_checkpoints.py::"
            "test_rounds_are_in_the_folder_of_their_survey_whatever_its_path_means[another working directory]",
        ),
    ),
    Mutant(
        "a new file under a name that may be somebody else's",
        (
            (
                "json_files.py",
                "temporary, descriptor = _new_file(folder, 0o666 if mode is None else mode)",
                'temporary = f"{place.name}.new"\n        Path(place.parent, temporary).unlink(missing_ok=True)\n'
                "        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder)",
            ),
        ),
        ("tests/accounting/test_account_files.py::test_a_charge_leaves_other_files_alone",),
    ),
    Mutant(
        "released values go through a link",
        (("release/ledger.py", "os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK", "os.O_RDWR | os.O_NONBLOCK"),),
        (
            "tests/release/test_ledger_files.py::"
            "test_released_values_go_into_no_file_that_the_run_did_not_create[symbolic link]",
        ),
    ),
    Mutant(
        "a noise check that could see nothing has passed",
        (("audit/transcript.py", "blind = passed and power < _LEAST_POWER", "blind = False"),),
        ("tests/audit/test_audit.py::test_an_audit_that_saw_too_little_noise_to_tell_half_of_it_is_not_passed",),
    ),
    Mutant(
        "both stages with one key",
        (
            (
                "run/stage.py",
                'key = derive(master, "run", digest)',
                'key = master if "survey" in about else derive(master, "run", digest)',
            ),
            ("run/stage.py", 'derive(survey.ledger.key, "rounds")', "survey.ledger.key"),
        ),
        (f"{SURVEYED}::test_noise_of_the_two_stages_is_unrelated",),
    ),
)
