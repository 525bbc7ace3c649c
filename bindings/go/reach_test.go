// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"os"
	"strings"
	"testing"

	"ujoin.dev/go"
)

// reached says for every function of ujoin.h what stands for it in Go; it compiles only if that is there.
var reached = map[string][]any{
	"ujoin_version":             {ujoin.Version},
	"ujoin_abi_version":         {ujoin.LibraryABIVersion},
	"ujoin_backends":            {ujoin.Backends},
	"ujoin_last_error":          {(*ujoin.Error).Error, ujoin.Error{}.Text},
	"ujoin_last_errno":          {ujoin.Error{}.Errno},
	"ujoin_last_missing":        {ujoin.Error{}.Ranks},
	"ujoin_status_name":         {ujoin.Status.String},
	"ujoin_set_last_error":      {ujoin.JoinHook.MainHook}, // the error that a callback returns
	"ujoin_set_interrupt_check": {ujoin.SetInterruptCheck},
	"ujoin_set_log_sink":        {ujoin.SetLogger, (*ujoin.LogSink).Close},

	"ujoin_store_create":  {ujoin.NewStore},
	"ujoin_store_prefix":  {(*ujoin.Store).Prefix},
	"ujoin_store_url":     {(*ujoin.Store).URL},
	"ujoin_store_set":     {(*ujoin.Store).Set},
	"ujoin_store_get":     {(*ujoin.Store).Get},
	"ujoin_store_add":     {(*ujoin.Store).Add},
	"ujoin_store_wait":    {(*ujoin.Store).Wait},
	"ujoin_store_abort":   {(*ujoin.Store).Abort},
	"ujoin_store_destroy": {(*ujoin.Store).Close},

	"ujoin_group_create":   {ujoin.NewGroup},
	"ujoin_group_split":    {(*ujoin.Group).Split},
	"ujoin_group_rank":     {(*ujoin.Group).Rank},
	"ujoin_group_size":     {(*ujoin.Group).Size},
	"ujoin_group_get_info": {(*ujoin.Group).Info},
	"ujoin_group_close":    {(*ujoin.Group).Shutdown},
	"ujoin_group_abort":    {(*ujoin.Group).Abort},
	"ujoin_group_destroy":  {(*ujoin.Group).Close},

	"ujoin_all_reduce":     {ujoin.AllReduce[float32], ujoin.AllReduceAsync[ujoin.Float16]},
	"ujoin_broadcast":      {ujoin.Broadcast[uint8], ujoin.BroadcastAsync[uint8]},
	"ujoin_all_gather":     {ujoin.AllGather[int64], ujoin.AllGatherAsync[int32]},
	"ujoin_reduce_scatter": {ujoin.ReduceScatter[ujoin.BFloat16], ujoin.ReduceScatterAsync[float64]},
	"ujoin_submit": {ujoin.Submit, ujoin.SubmitAsync, ujoin.ReduceTo[uint8], ujoin.Gather[int32], ujoin.Scatter[int64],
		ujoin.AllToAll[float32], ujoin.Send[float64], ujoin.Recv[ujoin.Float16]},
	"ujoin_barrier":           {(*ujoin.Group).Barrier},
	"ujoin_work_wait":         {(*ujoin.Work[float32]).Wait},
	"ujoin_work_test":         {(*ujoin.Work[float32]).Test},
	"ujoin_work_contributors": {(*ujoin.Work[float32]).Contributors},
	"ujoin_work_abort":        {(*ujoin.Work[float32]).Abort},
	"ujoin_work_destroy":      {(*ujoin.Work[float32]).Close},

	"ujoin_joinable_create":  {ujoin.NewJoinable},
	"ujoin_joinable_destroy": {(*ujoin.CustomJoinable).Close},
	"ujoin_joinable_notify":  {(*ujoin.CustomJoinable).Notify, (*ujoin.CustomJoinable).NotifyActive},
	"ujoin_ctx_create":       {ujoin.Join, ujoin.NewJoin},
	"ujoin_ctx_start":        {(*ujoin.JoinContext).Start},
	"ujoin_ctx_finish":       {(*ujoin.JoinContext).Finish, (*ujoin.JoinContext).Run},
	"ujoin_ctx_stop":         {(*ujoin.JoinContext).Stop},
	"ujoin_ctx_stopped":      {(*ujoin.JoinContext).Stopped},
	"ujoin_ctx_abort":        {(*ujoin.JoinContext).Abort},
	"ujoin_ctx_get_report":   {(*ujoin.JoinContext).Report},
	"ujoin_ctx_rounds":       {(*ujoin.JoinContext).Rounds},
	"ujoin_ctx_destroy":      {(*ujoin.JoinContext).Close},

	"ujoin_memory_create":  {ujoin.NewMemory, ujoin.NewMemoryContext},
	"ujoin_memory_data":    {ujoin.InMemory[float32]},
	"ujoin_memory_size":    {(*ujoin.Memory).Size},
	"ujoin_memory_destroy": {(*ujoin.Memory).Close},

	"ujoin_ddp_create":          {ujoin.NewDDP, ujoin.NewDDPContext},
	"ujoin_ddp_joinable":        {ujoin.Joinable(&ujoin.DDP{})},
	"ujoin_ddp_forward":         {(*ujoin.DDP).Forward, (*ujoin.DDP).Iteration, (*ujoin.DDP).IterationContext},
	"ujoin_ddp_ready":           {(*ujoin.DDP).Ready},
	"ujoin_ddp_finish":          {(*ujoin.DDP).Finish},
	"ujoin_ddp_set_sync":        {(*ujoin.DDP).SetSync},
	"ujoin_ddp_set_comm_hook":   {(*ujoin.DDP).SetCommHook, ujoin.BucketData[float32]},
	"ujoin_ddp_set_buffer_hook": {(*ujoin.DDP).SetBufferHook},
	"ujoin_ddp_gradient":        {ujoin.Gradient[float32]},
	"ujoin_ddp_used":            {(*ujoin.DDP).Used},
	"ujoin_ddp_get_report":      {(*ujoin.DDP).Report},
	"ujoin_ddp_destroy":         {(*ujoin.DDP).Close},

	"zero_create":                 {ujoin.NewZero, ujoin.NewZeroContext},
	"zero_joinable":               {ujoin.Joinable(&ujoin.Zero{})},
	"zero_step":                   {(*ujoin.Zero).Step, (*ujoin.Zero).StepWith, (*ujoin.Zero).StepUsing},
	"zero_add_param_group":        {(*ujoin.Zero).AddParamGroup},
	"zero_group_count":            {(*ujoin.Zero).Groups},
	"zero_hyper_name":             {(*ujoin.Zero).HyperNames},
	"zero_set_hyper":              {(*ujoin.Zero).SetHyper},
	"zero_get_hyper":              {(*ujoin.Zero).Hyper},
	"zero_param_data":             {ujoin.ParamData[float64]},
	"zero_set_gradient":           {ujoin.SetGradient[float64]},
	"zero_set_frozen":             {(*ujoin.Zero).SetFrozen, ujoin.Param.Frozen},
	"zero_clip_grad_norm":         {(*ujoin.Zero).ClipGradNorm},
	"zero_clear_gradients":        {(*ujoin.Zero).ClearGradients},
	"zero_consolidate_state_dict": {(*ujoin.Zero).ConsolidateStateDict},
	"zero_state_dict":             {(*ujoin.Zero).StateDict},
	"zero_load_state_dict":        {(*ujoin.Zero).LoadStateDict},
	"zero_save":                   {(*ujoin.Zero).Save},
	"zero_load":                   {(*ujoin.Zero).Load},
	"zero_shard_count":            {(*ujoin.Zero).Shards},
	"zero_get_shard":              {(*ujoin.Zero).Shards},
	"zero_get_memory":             {(*ujoin.Zero).Memory},
	"zero_destroy":                {(*ujoin.Zero).Close},

	"ujoin_state_create":  {ujoin.NewState},
	"ujoin_state_set":     {(*ujoin.State).Set},
	"ujoin_state_count":   {(*ujoin.State).Len},
	"ujoin_state_get":     {(*ujoin.State).At, (*ujoin.State).Items},
	"ujoin_state_find":    {(*ujoin.State).Find},
	"ujoin_state_destroy": {(*ujoin.State).Close},

	"zero_schedule":       {ujoin.Schedule.At},
	"zero_scaler_create":  {ujoin.NewScaler},
	"zero_scaler_scale":   {(*ujoin.Scaler).Scale},
	"zero_scaler_get":     {(*ujoin.Scaler).State},
	"zero_scaler_destroy": {(*ujoin.Scaler).Close},

	"pctx_parse_std":     {ujoin.ParseStd},
	"pctx_create":        {ujoin.NewProcesses},
	"pctx_set_env":       {(*ujoin.Processes).SetEnv, (*ujoin.Processes).UnsetEnv},
	"pctx_set_worker":    {(*ujoin.Processes).SetWorker},
	"pctx_start":         {(*ujoin.Processes).Start},
	"pctx_wait":          {(*ujoin.Processes).Wait},
	"pctx_failed":        {(*ujoin.Processes).Failed},
	"pctx_first_failure": {(*ujoin.Processes).FirstFailure},
	"pctx_get_result":    {(*ujoin.Processes).Result},
	"pctx_health":        {(*ujoin.Processes).Health},
	"pctx_report":        {(*ujoin.Processes).Report},
	"pctx_report_json":   {(*ujoin.Processes).ReportJSON},
	"pctx_signal":        {(*ujoin.Processes).Signal},
	"pctx_stop":          {(*ujoin.Processes).AskStop},
	"pctx_close":         {(*ujoin.Processes).Stop, (*ujoin.Processes).Close},
	"pctx_abort":         {(*ujoin.Processes).Kill},
	"pctx_destroy":       {(*ujoin.Processes).Close},

	"pctx_register":       {ujoin.Register},
	"pctx_worker_main":    {ujoin.WorkerMain},
	"pctx_return":         {ujoin.WorkerFunc(nil)}, // what it returns
	"pctx_record":         {ujoin.Record},
	"pctx_record_error":   {ujoin.RecordError},
	"pctx_record_crashes": {ujoin.Record}, // Go's runtime owns these signals: its crashes are panics, which Record records
}

// The list of functions is made from SWIG's tree of the header.
func TestEveryFunctionOfTheHeaderIsReachable(t *testing.T) {
	list, err := os.ReadFile("../tools/generated/functions.txt")
	ok(t, err)
	functions := strings.Fields(string(list))
	for _, name := range functions {
		if len(reached[name]) == 0 {
			t.Errorf("%s cannot be reached", name)
		}
	}
	if len(functions) != len(reached) {
		t.Errorf("ujoin.h has %d functions, %d are named here", len(functions), len(reached))
	}
}
